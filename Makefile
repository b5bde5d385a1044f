# SPDX-License-Identifier: GPL-2.0-or-later
#
# make ab      two packaged kernels: booted, measured, judged, explained; then two that differ by one commit
# make stories every story in exact mode: its effect and its control, beside what each must show
# make nights  ten nights of real kernels with a regression and its fix: one alarm, the right commit, one fixed
# make docs    the documentation as a site and as man pages
# make quick   lint and the unit tests of what changed, in less than a minute
# make test    lint, types, unit tests, documentation, pages in a browser, guests of two packages: a quarter of an hour
# make test-all  all the rest, in shards of at most half an hour: SHARD=2/11 runs one of them
#
# All of them set up whatever is missing first. BASE=, TEST= and ARGS= change what `make ab` compares.

# Tests start hundreds of interpreters, and each would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

BASE ?=
TEST ?=
ARGS ?=

PYTHON ?= /usr/bin/python3
VENV := .venv
BIN := $(VENV)/bin
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# Ansible asks for sudo's password only where sudo would.
ASK := $(shell [ "$$(id -u)" = 0 ] || sudo -n true 2>/dev/null || echo --ask-become-pass)

.PHONY: ab test test-all test-packages ci setup lint style types quick unit store smoke golden fuzz browser browser-smoke chromium pictures recording docs man wheel container vagrant kvm stories agreement nights bench bench-hunks bench-search bench-verdict scatter contention truth schema clean clean-store

ab: setup
	@$(BIN)/lab $(if $(BASE)$(TEST)$(ARGS),ab '$(or $(BASE),efa7df3e3bb5^)' '$(or $(TEST),efa7df3e3bb5)' $(ARGS),demo)

# Debian's packages for the tests. Each target below installs its own where it runs alone.
INSTALL := $(SUDO) sh -c 'apt-get update -q && apt-get install -q -y --no-install-recommends "$$@"' install

test-packages: $(VENV)/tools
	@{ command -v chromium && command -v man && command -v mandoc && command -v rpmbuild; } >/dev/null \
		|| $(INSTALL) chromium man-db mandoc rpm

# tests/suite.toml is the table of what runs. Kernels, images, trees and downloads are kept in a store beside it:
# LAB_TEST_STORE, /var/tmp/lab-test-store without it.
test: setup test-packages
	@exec $(BIN)/python -m tests.suite test

test-all: setup test-packages man
	@exec $(BIN)/python -m tests.suite all $(SHARD)

ci: setup test-packages
	@exec $(BIN)/python -m tests.suite ci

clean-store:
	rm -rf "$${LAB_TEST_STORE:-/var/tmp/lab-test-store}"

setup: $(VENV)/host-ready

# The Python side, with the versions that are pinned. `python3 -m venv` needs a package of its own on Debian. Without
# the tests' tools, `make ab` begins earlier. All CPUs compile the modules here: if PYTHONDONTWRITEBYTECODE is set, as in
# many containers, each command would compile all that it imports, and a refusal would take three times as long.
$(VENV)/ready: requirements.txt pyproject.toml
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ $(SUDO) apt-get update -q && $(SUDO) apt-get install -q -y --no-install-recommends python3-venv; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --require-hashes --requirement requirements.txt
	$(BIN)/pip install --quiet --no-compile --no-deps --editable .
	$(BIN)/python -m compileall -q -j 0 $(VENV)/lib lab
	@touch $@

# What tests and documentation need beside it.
$(VENV)/tools: $(VENV)/ready requirements-tools.txt
	$(BIN)/pip install --quiet --require-hashes --requirement requirements-tools.txt
	@touch $@

# The host side: an Ansible role, the only part that needs root. Run again when the role changed.
$(VENV)/host-ready: $(VENV)/ready ansible/playbooks/host_ready.yml $(wildcard ansible/roles/host_ready/*/*.yml)
	LC_ALL=C.UTF-8 ANSIBLE_ROLES_PATH=ansible/roles ANSIBLE_LOCALHOST_WARNING=false \
		$(BIN)/ansible-playbook -i localhost, $(ASK) ansible/playbooks/host_ready.yml
	@touch $@

lint: style types

types: $(VENV)/tools
	$(BIN)/mypy

style: $(VENV)/tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/yamllint --strict ansible ci
	PATH=$(CURDIR)/$(BIN):$$PATH ANSIBLE_ROLES_PATH=ansible/roles ANSIBLE_ACTION_PLUGINS=ansible/playbooks/action_plugins \
		$(BIN)/ansible-lint --offline -q ansible

unit: $(VENV)/tools
	$(BIN)/pytest -q -n auto -m 'not guest and not build and not network and not browser and not docs and not vagrant and not kvm and not long'

# An hour of what `make unit` does for ten seconds: damaged bundles, kernels and plans, and whatever is typed or
# printed. It ends with a table of inputs and findings. LAB_FUZZ_SEED= chooses another hour.
fuzz: $(VENV)/tools
	LAB_FUZZ_S=$${LAB_FUZZ_S:-3600} $(BIN)/pytest -q -n 2 tests/fuzz

# Lint and the unit tests of what changed, in less than a minute: see tests/scenarios/quick.py.
quick: $(VENV)/tools
	@$(BIN)/python -m tests.scenarios.quick $(ARGS)

# Pages in a real browser: Debian's, which nothing else needs.
browser: chromium
	LAB_REQUIRE_BROWSER=1 $(BIN)/pytest -q -n 2 -m browser tests/browser

# One of each kind of page.
browser-smoke: chromium
	LAB_REQUIRE_BROWSER=1 $(BIN)/pytest -q -m 'browser and smoke' tests/browser

chromium: $(VENV)/tools
	@command -v chromium >/dev/null || $(INSTALL) chromium

# docs/pictures: pages of results that were measured before. ARGS="--ab ID --bisect ID --matrix ID" chooses them.
pictures: chromium
	$(BIN)/python -m tests.scenarios.pictures $(ARGS)

# docs/_static/first.cast: the first page's recording of a terminal, from real runs.
recording: setup
	$(BIN)/python -m tests.scenarios.recording

SPHINX := $(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -d build/doctrees

# The site, in build/docs: strict, and without the network. What checks the man pages is Debian's.
docs: $(VENV)/tools man
	@{ command -v man && command -v mandoc; } >/dev/null || $(INSTALL) man-db mandoc
	$(SPHINX) -b html docs build/docs
	$(BIN)/pytest -q -m docs tests/docs

# `man lab-ab` finds those of the virtual environment once its bin/ is in PATH.
man: $(VENV)/tools
	rm -f build/man/*.1  # those of commands that are gone
	$(SPHINX) -b man docs build/man
	install -D --mode=644 --target-directory=$(VENV)/share/man/man1 build/man/*.1

# Has the man pages too, in share/man/man1.
wheel: man
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

# By podman, or CONTAINER=docker. Run it with -v lab:/home/lab, where kernels, the guest image and results are kept.
CONTAINER ?= podman

container: wheel
	$(CONTAINER) build --file Containerfile --tag kernel-ab-lab .

# The Vagrantfile, read by Vagrant. Where Debian has none (it left after 12), the tests are skipped, and say so.
vagrant: $(VENV)/tools
	@command -v vagrant >/dev/null || $(INSTALL) vagrant vagrant-libvirt || true
	$(BIN)/pytest -q -m vagrant tests/docs

# The guest image and two packages, made once, so that no test waits for them; then guests of the packages.
store: setup $(VENV)/tools
	$(BIN)/pytest -q -m smoke tests/guest/test_prebuilt.py

smoke: setup $(VENV)/tools
	$(BIN)/pytest -q -n 2 --dist loadfile -m smoke tests/guest

# The golden table, recorded anew where the version of the model was raised: see tests/guest/test_golden.py.
golden: setup $(VENV)/tools
	LAB_GOLDEN_RECORD=1 $(BIN)/pytest -q tests/guest/test_golden.py

# An emulated machine that has KVM, if this host has none, and live mode in it. Debian's generic kernel is downloaded
# and not installed.
kvm: setup $(VENV)/tools
	nice $(BIN)/pytest -q -s -m kvm --durations=0 tests/kvm

# The JSON Schema of `lab ab --json`, from the records themselves.
schema: $(VENV)/ready
	$(BIN)/python -c 'from lab.report import document; document.write_schema()'

stories: setup
	$(BIN)/python -m tests.scenarios.stories

agreement: setup
	$(BIN)/python -m tests.scenarios.agreement $(ARGS)

# Goes on where it was stopped; from the beginning without build/nights.
nights: setup
	$(BIN)/python -m tests.scenarios.nights $(ARGS)

bench: setup
	$(BIN)/python -m tests.scenarios.bench $(ARGS)

# Needs neither kernels nor guests.
bench-search: $(VENV)/ready
	$(BIN)/python -m tests.scenarios.bench_search $(ARGS)

# How often a search among hunks names those that were planted. Goes on where it was stopped.
bench-hunks: setup
	$(BIN)/python -m tests.scenarios.bench_hunks $(ARGS)

# The model beside this host: operations natively and in exact mode, with a machine file that is measured first.
truth: setup
	$(BIN)/python -m tests.scenarios.truth $(ARGS)

# How far the numbers of one kernel differ from seed to seed.
scatter: setup
	$(BIN)/python -m tests.scenarios.scatter $(ARGS)

# How far the changes of `contention` move with the quantum of turns and with the price of a move.
contention: setup
	$(BIN)/python -m tests.scenarios.contention $(ARGS)

# Neither does this: how often the verdict of live mode is wrong, and what it finds.
bench-verdict: $(VENV)/ready
	$(BIN)/python -m tests.scenarios.bench_verdict $(ARGS)

clean:
	rm -rf $(VENV) build dist docs/commands .mypy_cache .pytest_cache .ruff_cache
