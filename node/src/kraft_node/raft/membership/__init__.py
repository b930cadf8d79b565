"""Voters and observers: the present voters, their changes, and voters that lost their disk."""
