PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
LITE := $(VENV)/.lite
# The demo needs less than the tests; what the tests installed will do.
READY := $(if $(wildcard $(INSTALLED)),$(INSTALLED),$(VENV)/.demo)

.PHONY: demo test lint types unit torture docs web install lite clean

demo: $(READY)
	$(BIN)/pocketbayes demo

test: lint types unit

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

# Two tests at a time, with a thread each: more would wait for one another. Files stay together
# until one of the two has nothing left to do.
unit: $(INSTALLED) $(LITE)
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --dist worksteal

# Kills, full disks and jumping clocks while training: half an hour.
torture: $(INSTALLED)
	cd benchmarks && OMP_NUM_THREADS=1 nice -n 19 ../$(BIN)/python torture.py

# The guide, as a site that opens from its folder: site/index.html.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# What a browser runs, from engine/ and web/: package data.
web: $(INSTALLED)
	npm ci --prefix web
	$(BIN)/python web/build.py

install: $(INSTALLED)

$(INSTALLED): EXTRA := dev
$(VENV)/.demo: EXTRA := demo

# torch comes first and alone: its pin decides which build every other package sees.
$(INSTALLED) $(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "pocketbayes needs Python 3.11 or newer"'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$(EXTRA)]'
	touch $@

# Predictions without torch, compiled; tests that need it skip where there is no compiler.
lite: $(LITE)

$(LITE): $(INSTALLED) $(wildcard engine/*.[ch] lite/*.* lite/src/*/*.py)
	if command -v cc > /dev/null; then \
		$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --force-reinstall ./lite; \
	fi
	touch $@

clean:
	rm -rf $(VENV) site dist
