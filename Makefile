# What can be done here. Each target sets up what it needs; the second time that takes no time.

PARALLEL ?= -n 3 --dist loadfile --no-loadscope-reorder # most tests wait for others more than they compute

.PHONY: demo up test test-long lint format bench setup lock clean

demo: setup            ## a real video becomes a real clip with captions, from nothing
	@.venv/bin/ironclip demo

up: setup              ## Postgres, Redis, worker, beat, the API and Flower, until Ctrl-C
	@.venv/bin/ironclip up

test: setup            ## every test; ARGS="-k lease" picks some, PARALLEL= runs one after the other
	@sh scripts/test-packages
	@.venv/bin/pytest $(PARALLEL) $(ARGS)

test-long:             ## every test, also the further cases that `make test` leaves out
	@LONG=1 $(MAKE) test

lint: setup            ## style, types, and who imports whom
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy --strict
	.venv/bin/lint-imports

format: setup
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

bench: setup           ## figures, beside those of others
	@.venv/bin/python -m bench $(ARGS)

setup:
	@sh scripts/setup

lock:                  ## write requirements.lock anew; ARGS=--upgrade for the newest versions
	sh scripts/lock $(ARGS)

clean:                 ## back to a fresh checkout; what was delivered to output/ stays
	@if [ -e .ironclip/lock ] && command -v flock >/dev/null && ! flock -n .ironclip/lock true; then \
		echo "clean: process $$(cat .ironclip/lock) is still running on .ironclip; stop it first" >&2; exit 1; fi
	rm -rf .venv .tools .ironclip build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
