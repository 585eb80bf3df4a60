"""The database: tables, migrations, sessions. Nothing here knows HTTP or MLflow."""
