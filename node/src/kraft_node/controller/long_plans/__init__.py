"""Plans that take several turns of the loop: how they are carried out, and how brokers leave their ISRs."""
