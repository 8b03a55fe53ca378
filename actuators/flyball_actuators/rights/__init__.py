"""The calls that drivers and controller make, as rights: the files in ``infra/`` are written from them."""

from flyball_actuators.rights.files import contents as contents, stale as stale, write as write
