"""Runs: started, executed under a lease, followed; one mechanism for every way to ask.

The modules, in the order of a run's life:

* `ids` gives a run its id, `terms` are the limits that it takes along, and `start` stores it and
  spawns its executor;
* `executor` takes a claimed run to its end, `register` has what this node works on;
* `turn` makes the turn of a run: `session_history` finds what it is told of its session and has
  `summaries` made, `prompt` begins it, `turn_state` is how far it has come;
* `files` says which files it may have, `instructions` asks a function for its instructions;
* `agent_turn`, `team_turn` and `function_turn` take it, `function_steps` are what a function does
  once, `model_places` lets a call of a model wait for its place, `model_order` asks the next model
  where one fails, `model_requests` times and counts each request, and `tool_calls` calls the tools;
* `meter` has the numbers of requests, tokens, tools and queues that metrics show;
* `guarding` asks the guards around them, and `guarded_tools` admits calls as these said;
* `given` is what came with its request, `contexts` give that and the state of the session to
  functions, and `state_writer` keeps what they write;
* `step_outcomes` is how its steps are stored, `run_record` reads them after a crash, and `fold`
  makes the turn of them as it stood;
* `events` are what happens in it, `event_writer` keeps and stores them, `followers` read them;
* `watched_runs` are those that somebody follows here, and `run_watch` asks for the news of those
  that other nodes execute;
* `approvals` and `continuation` go on with a run that waits for a person;
* `forking` finds the places at which a run can be forked, `checkpoints` look back at it;
* `endings` is how a run ends or pauses, `cancellation` how somebody ends it;
* `notices` tells a webhook of that, `channel_replies` the person who asked in a channel, and
  `incident_book` keeps what went wrong for the list of it;
* `membership` and `keep_alive` say that this node lives, and find who does not;
* `release` and `reaper` see that none is left behind, `rounds` is how the reaper goes round;
* `unhosted` looks for what no node hosts, and `topics` are what those who wait are woken under;
* `found_runs` finds one by its id alone, for who looks after all of them;
* `outlook` says beforehand which runs go on under another configuration, and which do not;
* `retry` sees that a database may be away a while;
* `payloads` and `output` show a run and its parts to callers.
"""
