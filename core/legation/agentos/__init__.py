"""The import of an AgentOS database: sessions and runs as AgentOS stores them, made ours."""
