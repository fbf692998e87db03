"""Every target, by name."""

from fuzz import messages, records, security, settings, state, storage

TARGETS = {
    target.name: target
    for module in (messages, records, storage, state, security, settings)
    for target in module.TARGETS
}
