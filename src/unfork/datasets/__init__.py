"""What exists: one declaration per dataset, from which tables, Arrow schemas and files follow."""
