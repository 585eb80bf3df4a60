"""Hosted Arena as a platform: it records no owner, no content and no version, and changes or deletes next to nothing.

So everything is created once, under a name made of its content (`names`). What the names say is all that is known
of the past; `state` reads them back, `abilities` says what can not be done with a resource, and `sent` is what a
submission holds. The protocol is `platforms.arena_api`; our own server speaks it too.
"""
