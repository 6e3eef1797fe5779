# The whole developer interface: `make help` lists it. Each target makes what it needs, and only what is missing or outdated.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

# Everything is kept in build/ and in this one folder.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/vgpu-fleet
# For ansible-test and antsibull-docs, which write into the home folder and cannot be told otherwise.
TOOLS_HOME := $(CACHE)/home

VENV := build/venv
PACKAGES := $(VENV)/.packages
COLLECTIONS := build/collections
COLLECTION := $(COLLECTIONS)/ansible_collections/vgpu/fleet
STAGED := $(COLLECTIONS)/.staged
TARBALL := build/dist/vgpu-fleet-$(shell sed -n 's/^version: *//p' galaxy.yml).tar.gz
INSTALL_PATH := build/installed
INSTALLED := $(INSTALL_PATH)/.installed
BROWSER := build/browser/.checked

export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export ANSIBLE_HOME ?= $(CACHE)/ansible
export HYPOTHESIS_STORAGE_DIRECTORY := $(CURDIR)/build/hypothesis
export PIP_CACHE_DIR := $(CACHE)/pip
export UV_CACHE_DIR := $(CACHE)/uv
export UV_SYSTEM_CERTS := true
# For the folders of tests, of which pytest keeps the last three, and their labs.
export PYTEST_DEBUG_TEMPROOT := $(CURDIR)/build/tmp
# Where modules are put, here only where none is run on another machine.
demo test unit integration molecule bench pages helm same-results: export ANSIBLE_REMOTE_TMP := $(CURDIR)/build/ansible-tmp
# Where an environment forbids it, each start of Ansible would compile all of it again.
unexport PYTHONDONTWRITEBYTECODE

##@ To begin with

.PHONY: demo
demo: prebuild $(INSTALLED) ## Bare hosts in a lab become GPU clusters, on Harvester and on vSphere
	@demo/run.sh

.PHONY: test
test: $(INSTALLED) $(BROWSER) | $(PYTEST_DEBUG_TEMPROOT) ## Every check there is, several at a time
	@exec $(ON_INSTALLED) $(SUITES_RUN) $(NARROWED) $(call beside,lint sanity unit docs) \
		--molecule "$(K)" $(SUITES) -- $(PYTEST)

.PHONY: check
check: $(TARBALL) ## The quick ones: style, types and unit tests
	@exec $(SUITES_RUN) $(call beside,lint unit)

##@ Checks; K=EXPRESSION narrows unit, integration and molecule to matching tests

# Every Python file of the collection, as mypy names it.
PLUGINS = $(subst /,.,$(patsubst %.py,ansible_collections/vgpu/fleet/%,$(shell git ls-files 'plugins/*.py')))

.PHONY: lint
lint: $(STAGED) ## Style and types: ruff, mypy, yamllint, ansible-lint, changelog, documentation
	ruff check --quiet --output-format concise .
	ruff format --check --quiet --output-format concise .
	mypy --no-error-summary $(wildcard lab) tools
	@echo "mypy --no-error-summary --strict --python-version 3.10 (all of plugins)"
	@mypy --no-error-summary --strict --python-version 3.10 $(PLUGINS:%=-m %)
	yamllint --strict .
	antsibull-changelog lint
	antsibull-changelog lint-changelog-yaml --strict changelogs/changelog.yaml
	ANSIBLE_COLLECTIONS_PATH=$(COLLECTIONS) ansible-lint -q
	@mkdir -p "$(TOOLS_HOME)"
	HOME="$(TOOLS_HOME)" antsibull-docs lint-collection-docs --plugin-docs --validate-collection-refs self $(COLLECTION)

.PHONY: sanity
sanity: $(STAGED) ## ansible-test sanity, without any exception
	python tools/ansible_test_home.py "$(TOOLS_HOME)"
	version=$$(python -c 'import sys; print("%d.%d" % sys.version_info[:2])') && \
	cd $(COLLECTION) && HOME="$(TOOLS_HOME)" ansible-test sanity --local --python $$version

PYTEST := pytest --quiet $(if $(K),-k '$(K)') $(PYTEST_ARGS)

.PHONY: unit
unit: $(TARBALL) | $(PYTEST_DEBUG_TEMPROOT) ## Unit tests
	ANSIBLE_COLLECTIONS_PATH="$(CURDIR)/$(COLLECTIONS)" $(PYTEST) tests/unit

# Each in processes of its own, so that its labs end with it. AT_A_TIME=1 for one after the other, with live output.
AT_A_TIME ?= $(shell expr $$(nproc) + 1)
SUITES := $(sort $(dir $(wildcard tests/integration/*/test_*.py)))
SUITES_RUN = python -m tools.suites --at-a-time $(AT_A_TIME)
NARROWED = $(if $(K),--may-be-empty --whole)
ON_INSTALLED = env ANSIBLE_COLLECTIONS_PATH="$(CURDIR)/$(INSTALL_PATH)"
# Targets as jobs of a run that has staged the collection already.
beside = $(foreach target,$1,--beside "env --unset=ANSIBLE_COLLECTIONS_PATH $(MAKE) --no-print-directory --old-file=$(STAGED) $(target)")

.PHONY: integration
integration: $(INSTALLED) $(BROWSER) | $(PYTEST_DEBUG_TEMPROOT) ## Tests of the installed collection and of the lab, on running labs
	@exec $(ON_INSTALLED) $(SUITES_RUN) $(NARROWED) $(SUITES) -- $(PYTEST)

.PHONY: molecule
molecule: $(INSTALLED) ## The roles' scenarios, on labs that several of them share
	@exec $(ON_INSTALLED) $(SUITES_RUN) --molecule "$(K)"

TRACES ?= tests/data/traces

.PHONY: replay
replay: $(PACKAGES) ## Play recordings of real controllers on a lab and compare: TRACES=DIR
	@python -m lab replay --traces "$(TRACES)"

.PHONY: bench
bench: $(INSTALLED) build/bench/.packages | $(PYTEST_DEBUG_TEMPROOT) ## Measure the collection, also against others
	$(if $(wildcard tests/bench),\
	ANSIBLE_COLLECTIONS_PATH="$(CURDIR)/$(INSTALL_PATH):$(CURDIR)/build/bench" $(PYTEST) -s tests/bench,\
	@echo "There are no benchmarks yet.")

.PHONY: pages
pages: $(INSTALLED) | $(PYTEST_DEBUG_TEMPROOT) ## Run README and the pages of the playbooks as written, on a lab
	$(ON_INSTALLED) $(PYTEST) tests/pages

.PHONY: same-results
same-results: $(INSTALLED) | $(PYTEST_DEBUG_TEMPROOT) ## Run the module suites in process and packed and compare all results: ARGS="--line 2.16"
	@$(ON_INSTALLED) python -m tools.same_results $(ARGS) $(if $(K),-- -k '$(K)')

.PHONY: fuzz
fuzz: $(TARBALL) | $(PYTEST_DEBUG_TEMPROOT) ## Search for arguments, objects and names that break a module: ten thousand of each, and counts
	ANSIBLE_COLLECTIONS_PATH="$(CURDIR)/$(COLLECTIONS)" HYPOTHESIS_PROFILE=long $(PYTEST) tests/unit/fuzz

.PHONY: matrix
matrix: $(TARBALL) ## Check every supported ansible-core: ARGS="--line 2.16"
	@python -m tools.matrix --table build/matrix.md $(ARGS)

.PHONY: importer
importer: $(TARBALL) ## Import the tarball as Ansible Galaxy does
	@python -m tools.galaxy_import $(TARBALL)

.PHONY: helm
helm: $(INSTALLED) | $(PYTEST_DEBUG_TEMPROOT) ## Install, change and remove a chart with a real helm, which is compiled once
	$(ON_INSTALLED) $(PYTEST) tests/helm

.PHONY: resilience
resilience: $(INSTALLED) ## Faults, kills and two users at once, for each module that writes: ARGS="--jobs vgpu --minutes 8"
	@python -m tests.resilience --out build/resilience.json --table build/resilience.md $(ARGS)

.PHONY: compatibility
compatibility: $(INSTALLED) ## Take a vGPU through its life on every minor version of Harvester: ARGS="--version 1.8"
	@$(ON_INSTALLED) python -m tools.compatibility --table build/compatibility.md $(ARGS)

##@ Using it

.PHONY: playbook
playbook: $(INSTALLED) ## Run ansible-playbook with the installed collection and your environment: ARGS="play.yml -v"
	@ANSIBLE_COLLECTIONS_PATH="$(CURDIR)/$(INSTALL_PATH)" ansible-playbook $(ARGS)

.PHONY: lab
lab: $(PACKAGES) ## Run the lab's command: ARGS="up --help"
	@python -m lab $(ARGS)

.PHONY: lab-up
lab-up: $(PACKAGES) ## Start a lab: ARGS="--scenario mixed"
	@python -m lab up $(ARGS)

.PHONY: lab-down
lab-down: $(PACKAGES) ## Stop the lab
	@python -m lab down $(ARGS)

.PHONY: docs
docs: $(STAGED) ## Build the documentation into build/docs
	@mkdir -p "$(TOOLS_HOME)"
	HOME="$(TOOLS_HOME)" ANSIBLE_COLLECTIONS_PATH=$(COLLECTIONS) tools/docs.sh

##@ Upkeep

.PHONY: format
format: $(PACKAGES) ## Format the Python code
	ruff check --quiet --fix --exit-zero .
	ruff format --quiet .

.PHONY: lock
lock: $(PACKAGES) ## Pin the development packages anew
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --no-emit-index-url --no-header --no-annotate \
		--output-file requirements/dev.txt requirements/dev.in

.PHONY: sbom
sbom: $(PACKAGES) ## Write the bill of materials of the execution environment, build/sbom.cdx.json (CycloneDX)
	@python -m tools.sbom --output build/sbom.cdx.json

.PHONY: kubevirt-manifests
kubevirt-manifests: $(PACKAGES) ## Write lab/kubernetes/kubevirt_manifests.json anew, after the pinned version of KubeVirt has changed
	python -m tools.kubevirt_manifests

.PHONY: cluster-api-definitions
cluster-api-definitions: $(PACKAGES) ## Write lab/capv/cluster_api_definitions.json anew, after the version of Cluster API has changed
	python -m tools.cluster_api_definitions

.PHONY: changelog
changelog: $(STAGED) ## Bring CHANGELOG.rst up to date with its fragments
	antsibull-changelog release --refresh --reload-plugins --update-existing

# Those of tests and scenarios are deeper; a lab comes before the clusters inside it, which its own processes start.
LABS_IN_BUILD := find build -path $(VENV) -prune -o -name state.json -exec grep -q '"pid"' {} \; -printf '%d %h\n' 2>/dev/null | sort -n

.PHONY: clean
clean: ## Stop the labs in build/ and remove it; the cache stays
	@$(LABS_IN_BUILD) | while read -r _ lab; do python -m lab down --run-dir "$$lab" || exit 1; done
	rm -rf build

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^##@ / { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

# What the targets above stand on.

# Compiling takes the longest, so it begins first; it ends with this make.
.PHONY: prebuild
prebuild: ## Begin to compile the lab's programs in the background
	@python=$$(PYTHON=$(PYTHON) tools/python.sh) && "$$python" -m lab.programs.prebuild --begin-for $$PPID

$(PACKAGES): requirements/dev.txt tools/venv.sh
	@echo "Installing Python packages into $(VENV) ..." >&2
	@PYTHON=$(PYTHON) tools/venv.sh $(VENV) requirements/dev.txt >&2
	@touch $@

# Tests of HTML pages say so and skip where no browser can be had.
$(BROWSER): tools/browser.sh
	@mkdir -p $(@D) && tools/browser.sh $(@D)
	@touch $@

$(PYTEST_DEBUG_TEMPROOT):
	@mkdir -p $@

build/bench/.packages: requirements/bench.txt | $(PACKAGES)
	@uv pip install --quiet --no-deps --target build/bench -r requirements/bench.txt
	@touch $@

# The stamp's time changes only when the copy did.
.PHONY: FORCE
$(STAGED): FORCE $(PACKAGES)
	@python tools/stage.py $(COLLECTIONS) --stamp $@

$(TARBALL): $(STAGED)
	@ansible-galaxy collection build --force --output-path $(@D) $(COLLECTION) > build/dist.log

$(INSTALLED): $(TARBALL)
	@rm -rf $(INSTALL_PATH)
	@ANSIBLE_COLLECTIONS_PATH=$(INSTALL_PATH) ansible-galaxy collection install --offline -p $(INSTALL_PATH) $< > build/install.log
	@touch $@
