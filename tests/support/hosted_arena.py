"""What the contract suite of platforms leaves out for hosted Arena."""

from __future__ import annotations

CANNOT = {
    "test_every_write_moves_the_etag": "see that a reward differs in comments only",
    "test_versions_of_a_reward_follow_its_content": "see that a reward differs in comments only",
    "test_nobody_takes_a_name_from_another_stack": "the same work again, a revert, a rename",
    "test_the_run_of_others_is_used_and_left_as_it_is": "the same work again, a revert, a rename",
    "test_main_lengthens_what_its_preview_has_begun": "the same work again, a revert, a rename",
    "test_going_back_takes_an_equal_run_that_others_have_made_since": "the same work again, a revert, a rename",
    "test_a_raised_rerun_is_another_run_of_the_same_work": "try a failed or stopped run again",
    "test_a_stopped_run_goes_on_with_more[arena_cloud-tier]": "fewer `max_steps`, `target_score`, another tier or number of nodes",
    "test_a_stopped_run_goes_on_with_more[arena_cloud-time]": "`budget`, `retry`",
    "test_a_stopped_run_goes_on_with_more[arena_cloud-target]": "fewer `max_steps`, `target_score`, another tier or number of nodes",
    "test_a_retired_deployment_is_gone": "undeploy",
    "test_a_plan_that_was_applied_is_empty_afterwards": "deploy the best checkpoint, or `step_N`",
    "test_a_stored_file_can_be_read_again_within_a_limit": "say what differs from the version before",
    "test_what_is_purged_is_gone_for_good": "delete anything",
    "test_a_run_that_another_experiment_shares_outlives_a_purge": "delete anything",
    **dict.fromkeys(
        (
            "test_one_at_a_time_and_the_other_is_told_who_holds_it_since_when",
            "test_a_released_lease_is_free_and_the_next_fence_is_higher",
            "test_an_expired_lease_may_be_taken_and_its_holder_learns_of_it",
            "test_a_late_heartbeat_revives_a_lease_that_nobody_has_taken",
            "test_writes_under_the_lease_arrive_and_others_do_not",
            "test_the_late_write_of_an_old_apply_is_refused",
        ),
        "a lease against two applies at a time",
    ),
}
"""Of this suite, what hosted Arena's protocol cannot keep → the row of its capability table that says so."""
