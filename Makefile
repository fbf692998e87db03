# Everything starts here. `make demo` and `make test` need only Python >= 3.11 with venv, and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.demo-installed
JAVA_CLIENTS := $(VENV)/java-clients.classpath
GO_CLIENTS := $(VENV)/franz-go-copier
GO_TESTS := $(VENV)/franz-go-kfake-tests
S3_GATEWAY := $(BIN)/versitygw
VERSITYGW := github.com/versity/versitygw/cmd/versitygw@v1.8.0
MAVEN_DEPENDENCIES := org.apache.maven.plugins:maven-dependency-plugin:3.8.1
WORKERS ?= 2
# so many folders of tests at once, on two cores: many tests wait for processes
TEST_WORKERS ?= 4
# Tests start hundreds of processes. What they import is compiled once, even where the environment keeps Python from writing it.
PYTEST := env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX="$(CURDIR)/build/pycache" $(BIN)/python -m pytest

SIDE_BY_SIDE := $(BIN)/python tests/support/side_by_side.py
# Each half has one process of its own, which collects nothing of the other: on two cores that is faster than workers.
CHECK = $(PYTEST) -q $(HALF) --durations 10 --first-case --hypothesis-profile check -m 'not slow and not long'
HALF := $(shell test $(WORKERS) -le 2 || echo "-n $$(($(WORKERS) / 2)) --dist loadfile")

.PHONY: help install generated rights check-setting check-metric check-api java-clients go-clients go-tests s3-gateway demo check test dist docs screenshots compatibility types lint format requirements bench bench-full clean
help:            ## this list
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 16

$(STAMP): pyproject.toml
	@echo "installing into $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --disable-pip-version-check --upgrade pip -e '.[test]' > $(VENV)/install.log 2>&1 \
		|| { tail -20 $(VENV)/install.log; exit 1; }
	@touch $@ $(DEMO_STAMP)

# What the demo needs and no more: the broker and two clients, not the 1.9 GB of the tests.
$(DEMO_STAMP): pyproject.toml
	@echo "installing into $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --disable-pip-version-check --upgrade pip -e '.[demo]' > $(VENV)/install.log 2>&1 \
		|| { tail -20 $(VENV)/install.log; exit 1; }
	@touch $@

install: $(STAMP) $(JAVA_CLIENTS) $(GO_CLIENTS) ## the virtual environment, with everything the tests need

# Kafka's own client, for the protocol that no Python library speaks: Maven puts the jars into its local repository.
$(JAVA_CLIENTS): tests/interop/java/pom.xml | $(STAMP)
	@if command -v mvn > /dev/null && command -v javac > /dev/null; then \
		mvn -q -B -f $< $(MAVEN_DEPENDENCIES):build-classpath -Dmdep.outputFile="$(CURDIR)/$@" > $(VENV)/maven.log 2>&1 && touch $@ \
		|| { rm -f $@; echo "Maven could not resolve Kafka's Java client ($(VENV)/maven.log): its tests will be skipped"; }; \
	else echo "no JDK or no Maven: the tests with Kafka's Java client will be skipped"; fi

java-clients: $(JAVA_CLIENTS) ## Kafka's Java client, if a JDK and Maven are here

# franz-go, as a program: Go puts its sources into its own module cache.
$(GO_CLIENTS): $(wildcard tests/interop/go/*) | $(STAMP)
	@if command -v go > /dev/null; then \
		(cd tests/interop/go && GOTOOLCHAIN=local go build -trimpath -o "$(CURDIR)/$@" .) > $(VENV)/go.log 2>&1 \
		|| { rm -f $@; echo "Go could not build with franz-go ($(VENV)/go.log): its tests will be skipped"; }; \
	else echo "no Go: the tests with franz-go will be skipped"; fi

go-clients: $(GO_CLIENTS) ## franz-go, if Go is here

# Its own tests of share groups take a minute to build, so only long runs want them.
$(GO_TESTS): $(wildcard tests/interop/go/kfake/*) tests/interop/go/go.mod | $(STAMP)
	@if command -v go > /dev/null; then tests/interop/go/kfake/build.sh $(VENV)/franz-go-kgo-tests $@ > $(VENV)/go-tests.log 2>&1 \
		|| { rm -f $@; echo "Go could not build the tests of franz-go ($(VENV)/go-tests.log): they will be skipped"; }; \
	else echo "no Go: the tests of franz-go will be skipped"; fi

go-tests: $(GO_TESTS) ## franz-go's own tests of share groups, if Go is here

# A second server with S3's protocol, beside SeaweedFS. Go compiles it for some minutes, so only long runs want it.
$(S3_GATEWAY): | $(STAMP)
	@if command -v go > /dev/null; then \
		GOBIN="$(CURDIR)/$(BIN)" GOTOOLCHAIN=local go install $(VERSITYGW) > $(VENV)/versitygw.log 2>&1 \
		|| echo "Go could not build versitygw ($(VENV)/versitygw.log): its tests will be skipped"; \
	else echo "no Go: the tests with versitygw will be skipped"; fi

s3-gateway: $(S3_GATEWAY) ## versitygw, a second S3 server for long runs, if Go is here

check: $(STAMP)     ## what to run before a commit, in a minute: tidiness, protocol, storage, broker and client; the first case of each test that is not slow
	@$(SIDE_BY_SIDE) $(CHECK) tests/broker ::: $(CHECK) tests/test_tidy.py tests/protocol tests/storage tests/client

# What tells that something new is complete, and takes longer than `make check` has.
check-setting: $(STAMP) ## whether a new setting is complete: its tables, pages and what Kafka answers
	$(PYTEST) -q tests/broker/config tests/conformance tests/test_docs_site.py -k 'settings or configs or made_of_the_code'

check-metric: $(STAMP) ## whether a new metric is complete: board, rules, pages
	$(PYTEST) -q tests/cli/generate tests/broker/handlers/test_monitoring.py tests/test_docs.py tests/test_docs_site.py -k 'not (snippet or site_builds or tutorial or faststream or kafka_streams)'

check-api: $(STAMP) ## whether a new API is complete: bytes, rights, work, Admin, pages
	$(PYTEST) -q tests/protocol/test_own_apis.py tests/broker/net/test_features.py tests/broker/net/test_work_of_requests.py tests/broker/test_durability.py \
		tests/broker/handlers/test_monitoring.py tests/client/admin/test_monitoring.py tests/client/sync/test_sync.py \
		tests/conformance/test_rights.py tests/test_docs_site.py -k 'not (snippet or site_builds or tutorial or faststream or kafka_streams)'

check-asyncio: $(STAMP) ## broker, clients and other libraries on asyncio's own loop, without uvloop
	PYTHONPATH="$(CURDIR)/tests/no_uvloop" $(PYTEST) -q -n $(WORKERS) --hypothesis-profile check -m 'not slow and not long' \
		tests/effects tests/broker tests/client tests/testing tests/interop

# Spark gives each of its Python workers ten seconds to start, whatever runs beside it.
test: $(STAMP) $(JAVA_CLIENTS) $(GO_CLIENTS) ## all tests but the long ones; those with Spark's JVM, in one process, beside the others
	@mkdir -p build && rm -f build/untested
	@UNTESTED="$(CURDIR)/build/untested" $(BIN)/python tests/support/suite.py $(TEST_WORKERS) \
		nice -n 5 $(PYTEST) -q -rsfE -m 'not long and not jvm' ::: \
		$(PYTEST) -q -rsfE -m 'jvm and not long' tests/spark
	@$(BIN)/python tests/support/untested.py build/untested

dist: $(STAMP)      ## sdist and wheel in dist/; the wheel is installed into an empty environment, where it runs the demo
	rm -rf dist build/dist
	$(BIN)/python -m build --outdir dist . > $(VENV)/build.log 2>&1 || { tail -20 $(VENV)/build.log; exit 1; }
	$(BIN)/python tests/support/distribution.py dist/*
	$(PYTHON) -m venv build/dist
	build/dist/bin/python -m pip install --disable-pip-version-check --quiet "$$(echo dist/*.whl)[demo]"
	cd build/dist && bin/fencepost demo

lint: $(STAMP)      ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP)    ## ruff, writing
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

kill9: $(STAMP)     ## kill -9 under load, ROUNDS times (default 1000); prints its seed
	ROUNDS=$${ROUNDS:-1000} $(PYTEST) -q -s tests/crash/test_kill9.py

crash-points: $(STAMP) ## every crash point of every scripted workload, none sampled, and crashes in TWICE (default 300) recoveries of each; 0: in all, for hours
	CRASH_LIMIT=0 CRASH_TWICE=$${TWICE:-300} $(PYTEST) -q -n $(WORKERS) tests/storage/journal/test_crashes.py tests/crash/test_crash_points.py \
		tests/crash/test_transaction_crash_points.py tests/crash/test_offset_crash_points.py \
		tests/crash/test_share_crash_points.py tests/crash/test_named_crash_points.py

lives: $(STAMP)     ## brokers killed and unplugged in turn, LIVES power cuts (default 2000); prints its SEED
	LIVES=$${LIVES:-2000} SEED=$${SEED:-$$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')} $(PYTEST) -q -s tests/crash/test_broker_lives.py
	LIVES=$${LIVES:-240} HISTORIES=$${HISTORIES:-200} $(PYTEST) -q -n $(WORKERS) tests/crash/test_lives.py tests/crash/test_law_4.py

races: $(STAMP)     ## late requests of old clients against the connection fence, RACES (default 1000) a client and kind
	RACES=$${RACES:-1000} $(PYTEST) -q -n $(WORKERS) tests/interop/test_fence_races.py

sim: $(STAMP)       ## brokers under virtual time, SEEDS histories (default 100, from FIRST on, each or each EVERYth), or one SEED again, of SECONDS; IN_STORE=1: with the journal in a store of objects; QUEUES=1: a share group alone; MIRROR=1: a mirror between two brokers
	@$(BIN)/python tests/simulation/run.py --workers $(WORKERS) --seeds $(or $(SEEDS),100) --first $(or $(FIRST),1) \
		--every $(or $(EVERY),1) --seconds $(or $(SECONDS),30) $(if $(IN_STORE),--in-store) $(if $(QUEUES),--queues) $(if $(MIRROR),--mirror) $(if $(SEED),--seed $(SEED))

mutants: $(STAMP)   ## each bug of the bank has to be caught by the simulation
	$(PYTEST) -q -s -n $(WORKERS) -m long tests/simulation/test_mutants.py

mutants-all: $(STAMP) ## small changes to pure modules, all or SAMPLE of each of MODULES by SEED; installs cosmic-ray beside; hours
	@test -x build/mutation-tool/bin/cosmic-ray || { $(PYTHON) -m venv build/mutation-tool && build/mutation-tool/bin/pip install -q cosmic-ray; }
	$(BIN)/python tests/mutation/run.py --tool "$(CURDIR)/build/mutation-tool/bin" $(if $(SAMPLE),--sample $(SAMPLE)) --seed $(or $(SEED),1) $(if $(MODULES),--modules $(MODULES))

eos-copy: $(STAMP) $(JAVA_CLIENTS) $(GO_CLIENTS) ## Kafka's exactly-once copy test at length: 100,000 messages, brokers and copiers killed KILLS times each (default 12); prints its SEED
	COPIED=$${COPIED:-100000} $(PYTEST) -q -s -m long tests/crash/test_exactly_once_copy.py

power-cuts: $(STAMP) ## ROUNDS (default 300) power cuts by the kernel, on ext4 in a file; needs root; prints its SEED
	ROUNDS=$${ROUNDS:-300} $(PYTEST) -q -s -m long tests/crash/test_power_cuts.py

damage: $(STAMP)    ## every bit flipped, every truncation, of every file of a data directory (DAMAGE=0), or so many
	DAMAGE=$${DAMAGE:-0} SEED=$${SEED:-1} $(PYTEST) -q -s -n $(WORKERS) tests/crash/test_byte_damage.py tests/crash/test_damage_and_restore.py

fuzz: $(STAMP)      ## every reader of bytes, MINUTES in all (default 10), or TARGETS of them, by atheris (installed beside) or a loop of our own
	@test -d build/atheris || $(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --target build/atheris 'atheris>=3' \
		|| echo "atheris does not install here: the loop of our own takes its place"
	@PYTHONPATH=build/atheris $(BIN)/python tests/fuzz/run.py --minutes $(or $(MINUTES),10) $(TARGETS)

demo: $(DEMO_STAMP) ## real text through a bad network, transactions, and a copy under random kills: lost 0, twice 0
	@$(BIN)/fencepost demo

demo-spark: $(STAMP) ## word counts and a copy of real text by Spark, driver and executor killed: lost 0, twice 0
	@$(BIN)/fencepost spark demo

spark-kills: $(STAMP) ## every kill of driver, Python worker and broker at every step of the sink, on real Spark, and copies of slow tasks
	$(PYTEST) -q -s -m long tests/spark/sink/test_speculation.py tests/spark/sink/test_kills.py

bench: $(STAMP)     ## the table against Apache Kafka and others, in one run of 15 minutes at most; into bench/results
	@$(BIN)/python -m fencepost.bench.contest.run $(OPTIONS)

bench-full: $(STAMP) ## every scenario, in more rounds: hours; OPTIONS='--only bound': what needs no other broker
	@$(BIN)/python -m fencepost.bench.contest.run --full $(OPTIONS)

test-long: export WHOLE := 1 # examples, crash points and seeds: all, not the share that the suite takes
test-long: $(STAMP) $(JAVA_CLIENTS) $(GO_CLIENTS) $(GO_TESTS) $(S3_GATEWAY) ## what the suite samples, at length
	$(PYTEST) -q -rs -n $(WORKERS) -m 'long and not jvm'
	$(PYTEST) -q -rs -m 'long and jvm' tests/spark
	$(PYTEST) -q -rs -n $(WORKERS) -m '(hypothesis or sampled) and not long and not jvm'

types: $(STAMP)     ## mypy --strict over the package, pyright's strict over what users import
	@mkdir -p build/types/fencepost
	@find build/types/fencepost -maxdepth 1 -type l -delete
	@for f in fencepost/*; do case "$$f" in *__pycache__) ;; *) ln -s "$(CURDIR)/$$f" build/types/fencepost/;; esac; done
	@for d in effects protocol storage broker client spark console testing cli bench; do ln -s "$(CURDIR)/$$d" build/types/fencepost/$$d; done
	cd build/types && MYPYPATH=. "$(CURDIR)/$(BIN)/mypy" --config-file "$(CURDIR)/pyproject.toml" --cache-dir "$(CURDIR)/.mypy_cache" -p fencepost
	$(BIN)/basedpyright --warnings

docs: $(STAMP)      ## the documentation as a site in build/site; every link is checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site is written; to look at it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8000"

generated: $(STAMP) ## every page of docs/ that is made of the code: settings, metrics, SDK reference, errors, API versions
	@$(BIN)/python docs/site/pages.py --generated

screenshots: $(STAMP) ## the pictures of the console in docs/images, taken in Chromium
	$(BIN)/python docs/site/screenshots.py

compatibility: $(STAMP) $(JAVA_CLIENTS) ## tests with other clients, and docs/compatibility.md from what they found
	mkdir -p build
	-$(PYTEST) -q -m '' --junitxml=build/interop.xml tests/interop
	$(BIN)/python docs/site/pages.py build/interop.xml

oracle: $(STAMP)    ## what a running Apache Kafka answers, asked again: KAFKA=HOST:PORT [OPTIONS="--check --broker impatient"]
	@PYTHON=$(BIN)/python tests/conformance/oracle.sh $(KAFKA) $(OPTIONS)

rights: $(STAMP)    ## what our own APIs answer to users of every right, where tests/conformance/rights/ours.txt lacks it, and again ROWS="\"NAME\" …"; read the diff
	@PYTHONPATH=tests/conformance $(BIN)/python -m rights.own_record $(ROWS)

requirements: $(STAMP) ## every required behaviour, with the tests that show it
	@$(PYTEST) -q --requirements --no-header --no-summary -W ignore | grep -v '^$$' | grep -vE 'no tests|deselected'

clean:              ## remove what make built
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .hypothesis
