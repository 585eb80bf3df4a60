"""The native API over a real server process."""


def test_an_experiment_trains_and_its_run_completes(server, build):
    document = server.apply("exp", build.experiment())
    run = server.wait_run(document["run"]["run_id"])
    assert (run["state"], run["step"], run["best"]["step"]) == ("completed", 16, 16)
