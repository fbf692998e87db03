"""Every target, by name."""

from fuzz import messages, records, security, settings, shipping, state, storage

TARGETS = {
    target.name: target
    for module in (messages, records, storage, shipping, state, security, settings)
    for target in module.TARGETS
}
