"""What Spark can read and write of unfork: data sources that run inside its Python workers."""
