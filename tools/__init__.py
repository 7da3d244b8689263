"""Generators and checks for whoever changes deltamirror. Not in the wheel."""
