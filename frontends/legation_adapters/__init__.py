"""Agents of other frameworks, hosted as they are: each framework has a module and an extra.

    from legation import Platform
    from legation_adapters.pydantic_ai import hosted

    platform = Platform(agents=[hosted(agent)])

A framework runs on a loop of asyncio in a thread of its own (`loop_thread`).  What its model
answers and what its tools return is recorded (`recorder`), so it is not done twice after a crash.
"""
