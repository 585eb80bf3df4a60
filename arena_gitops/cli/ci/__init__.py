"""`arena ci`: what a GitHub workflow calls. Driven by GitHub's files and variables only, so it can be tested here."""
