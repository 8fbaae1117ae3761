"""All SQL, and the only importer of SQLAlchemy."""
