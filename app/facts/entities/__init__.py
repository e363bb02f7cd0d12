"""Entities: what facts are about, found by canonical name, alias, URI or id."""
