//! Every case, in one list. A case owns namespaces, queues, flavors and nodes of its own name, and may run beside any
//! other; one that stops or slows a shared server is serial.

pub mod appwrapper;
pub mod appwrapper_faults;
pub mod appwrapper_hub;
pub mod appwrapper_kills;
pub mod appwrapper_lease;
pub mod appwrapper_life;
pub mod appwrapper_rights;
pub mod appwrapper_stage;
pub mod bed;
pub mod capacity;
pub mod chart;
pub mod claims;
pub mod cluster_profile;
pub mod cohort_mode;
pub mod command_line;
pub mod conformance;
pub mod faults;
pub mod gitops;
pub mod gitops_flavors;
pub mod hub_queues;
pub mod k8s_cli;
pub mod kueue_fleet;
pub mod kueue_move;
pub mod kueuectl;
pub mod leaving;
pub mod logs;
pub mod manifests;
pub mod metrics;
pub mod moving;
pub mod multikueue;
pub mod multikueue_stage;
pub mod multikueue_stories;
pub mod placement;
pub mod pod_security;
pub mod policy;
pub mod reported;
pub mod rights;
pub mod stage;
pub mod task;
pub mod task_enter;
pub mod task_kills;
pub mod task_logs;
pub mod task_lost;
pub mod task_stage;
pub mod task_starts;
pub mod task_stops;
pub mod tester;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::Result;

use crate::support::fleet::Fleet;

/// Polled by the case's own thread, so it need not be `Send`.
pub type Running = Pin<Box<dyn Future<Output = Result<()>>>>;

#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    pub turn: Turn,
    pub run: fn(Arc<Fleet>) -> Running,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    Parallel,
    /// Alone on its fleet, after those that share one. What takes longest comes first, so that no fleet is idle at the end.
    Serial,
}

macro_rules! cases {
    ($turn:ident: $($module:ident :: $name:ident),* $(,)?) => {
        [$(Case {
            name: concat!(stringify!($module), "::", stringify!($name)),
            turn: Turn::$turn,
            run: |fleet| Box::pin(async move { $module::$name(&fleet).await }),
        }),*]
    };
}

pub fn all() -> Vec<Case> {
    let mut all = parallel();
    all.extend(serial());
    all
}

#[expect(clippy::too_many_lines, reason = "a list")]
fn serial() -> [Case; 92] {
    cases![Serial:
        bed::a_killed_api_server_comes_back_with_its_data,
        bed::a_frozen_api_server_answers_nobody,
        task_kills::killed_at_each_step_of_a_submit_a_task_is_neither_lost_nor_run_twice,
        appwrapper::upstreams_cases_end_well_under_ours,
        appwrapper::upstreams_cases_end_well_under_upstreams,
        appwrapper::killed_at_any_moment_it_makes_each_component_once,
        appwrapper_kills::killed_at_each_request_it_makes_each_component_once_and_holds_its_quota,
        appwrapper_kills::cut_off_at_each_request_it_makes_each_component_once_and_holds_its_quota,
        appwrapper_faults::what_is_wrong_or_forbidden_is_refused_with_field_and_reason,
        appwrapper_faults::failures_owners_and_pods_that_stay_are_dealt_with,
        appwrapper_faults::an_api_server_that_stops_meanwhile_loses_and_doubles_nothing,
        appwrapper_faults::a_job_that_its_copy_does_not_have_yet_fails_upstreams_and_not_ours,
        appwrapper_lease::replicas_hand_over_within_the_lease_and_never_act_together,
        appwrapper_hub::appwrappers_go_from_the_hub_to_the_worker_that_runs_them,
        appwrapper_hub::appwrappers_go_from_the_hub_to_the_worker_of_upstreams,
        appwrapper_rights::what_is_wrapped_is_granted_in_each_namespace_and_is_its_submitters,
        appwrapper_rights::labels_name_who_asked_and_nobody_else_changes_them,
        appwrapper_hub::killed_or_cut_off_while_it_hands_over_each_component_exists_once,
        appwrapper_hub::multikueue_dispatches_appwrappers_and_they_are_found_where_they_land,
        multikueue_stories::the_three_stories_of_the_guide_end_with_finished_jobs,
        logs::four_nodes_are_one_log_through_a_restart_of_their_api_server,
        capacity::two_joined_workers_fill_the_queues_of_the_hub_and_run_jobs,
        capacity::quota_follows_the_nodes_and_heartbeats_write_nothing,
        moving::quota_moves_only_as_workloads_free_it,
        moving::quota_that_is_moved_to_and_fro_is_never_out_twice,
        claims::the_manifest_of_the_feature_request_gives_the_quotas_it_says,
        claims::kubectl_alone_joins_edits_and_reads,
        claims::claims_that_vanish_together_are_held_until_confirmed,
        claims::an_unknown_name_waits_and_takes_effect_when_it_appears,
        claims::a_wrong_claim_is_refused_and_changes_nothing,
        gitops::argo_cd_and_fedq_share_a_queue,
        gitops::flux_and_fedq_share_a_queue,
        gitops::the_lines_that_are_printed_end_a_conflict_with_argo_cd,
        gitops::the_lines_that_are_printed_end_a_conflict_with_flux,
        gitops::two_engines_at_one_queue_are_told_and_not_fought,
        gitops_flavors::argo_cd_applies_on_the_server_and_takes_flavors_in_and_out,
        gitops_flavors::flux_takes_flavors_in_and_out_and_heeds_its_annotations,
        hub_queues::a_foreign_queue_of_the_same_name_is_left_alone_until_adopted,
        hub_queues::what_people_wrote_on_a_hub_queue_is_kept,
        hub_queues::a_controller_that_writes_our_cells_is_named_not_fought,
        hub_queues::a_multikueue_queue_counts_only_clusters_it_dispatches_to,
        hub_queues::quota_that_kueue_manages_is_left_to_it,
        cohort_mode::a_cohorts_quota_is_used_as_its_queues_own,
        cohort_mode::fair_sharing_weighs_a_cohort_as_its_queue,
        cohort_mode::a_queue_from_git_dispatches_what_its_cohort_has,
        hub_queues::a_queue_on_hold_keeps_what_still_runs,
        leaving::a_cordoned_cluster_counts_only_what_its_workloads_hold,
        leaving::a_leaving_cluster_loses_its_share_first_and_only_what_is_ours,
        leaving::another_cluster_under_a_joined_name_is_quarantined_until_confirmed,
        leaving::a_kubeconfig_that_cannot_be_used_is_refused_with_its_reason,
        leaving::a_cluster_without_kueue_says_so_and_a_bare_node_counts_nothing,
        multikueue::jobs_run_where_a_placement_decides_and_no_change_of_it_evicts_them,
        multikueue::running_work_outlives_tokens_restarts_and_comes_back_from_an_eviction,
        multikueue::a_worker_whose_api_server_stops_and_returns_finishes_its_work,
        multikueue::placements_that_share_a_cluster_keep_their_own_objects,
        multikueue::what_is_wrong_with_a_check_is_said_and_nothing_else_moves,
        multikueue::a_token_that_is_void_before_its_time_is_replaced_once,
        multikueue::of_more_than_twenty_clusters_the_best_are_used_and_the_rest_is_told,
        cluster_profile::a_cluster_is_joined_by_its_profile_and_runs_jobs_of_multikueue,
        placement::the_three_stories_end_in_finished_jobs,
        placement::a_placement_has_one_writer_and_what_is_wrong_is_told,
        reported::a_cluster_that_only_reports_counts_on_the_hub,
        reported::nodes_of_followed_clusters_are_published_when_asked_for,
        task_logs::four_nodes_are_submitted_followed_through_a_restart_and_stopped,
        task_lost::a_lost_clusters_task_runs_elsewhere_and_its_copy_is_withdrawn_at_return,
        task_starts::what_does_not_start_says_why_and_goes_where_it_can,
        task_enter::people_enter_their_own_tasks_where_the_cluster_allows_it,
        command_line::a_claim_is_edited_with_checks_and_on_top_of_other_edits,
        command_line::the_command_line_joins_checks_and_leaves,
        kueuectl::the_same_lines_give_the_same_answers_as_kueuectls,
        kueue_fleet::people_see_and_change_on_each_cluster_what_it_lets_them,
        command_line::nobody_gets_further_than_the_hub_lets_them,
        task::tasks_run_wait_move_and_stop_across_clusters,
        k8s_cli::the_workflows_of_its_specification_give_its_answers,
        tester::a_tester_by_schemas_finds_nothing,
        task_stops::a_task_is_stopped_in_every_phase,
        task::a_job_set_is_admitted_as_one_or_not_at_all,
        task::a_task_goes_where_its_volume_is_and_holds_it,
        task::a_queue_of_multikueue_dispatches_tasks_and_they_are_found_where_they_land,
        metrics::prometheus_scrapes_and_finds_every_metric,
        pod_security::a_worker_refuses_pods_that_the_hub_refuses,
        policy::fedqs_account_changes_nothing_but_its_own_on_a_worker,
        rights::the_rights_that_are_shipped_suffice_from_joining_to_leaving,
        rights::multikueue_runs_jobs_with_the_rights_that_are_shipped,
        chart::helm_installs_upgrades_rolls_back_and_removes_it,
        faults::a_daemon_killed_again_and_again_ends_in_the_same_state,
        faults::a_restarted_daemon_resumes_its_watch_or_lists_and_compares,
        faults::a_hub_that_refuses_writes_keeps_its_base_through_a_restart,
        faults::a_silent_cluster_keeps_its_share_until_it_is_lost,
        faults::a_kind_that_is_forbidden_does_not_hold_up_what_others_lose,
        faults::a_second_claim_that_was_turned_down_is_so_after_a_restart,
        faults::an_invalid_edit_leaves_the_last_valid_text_in_force_after_a_restart,
    ]
}

fn parallel() -> Vec<Case> {
    let mut all = Vec::from(cases![Parallel:
        bed::a_job_within_quota_runs_and_one_above_stays_suspended,
        bed::the_webhook_refuses_to_lend_more_than_nominal,
        bed::multikueue_sends_a_job_to_a_worker,
        bed::writes_are_counted_by_user,
        bed::a_pod_logs_through_the_api_server,
        bed::a_bare_cluster_has_no_kueue,
        bed::nothing_outlives_a_killed_run,
        chart::what_it_renders_is_what_kubectl_applies,
        chart::each_value_does_what_it_says_and_a_misspelt_one_is_refused,
        manifests::kubeconform_takes_all_that_is_shipped,
        metrics::prometheus_raises_alerts_and_takes_any_label,
        kueue_move::killed_at_each_request_a_move_leaves_the_job_in_one_queue_or_the_other,
    ]);
    macro_rules! conformance_cases {
        ($($name:ident),*) => { all.extend(cases![Parallel: $(conformance::$name),*]) };
    }
    crate::conformance::with_themes!(conformance_cases);
    all.extend(cases![Parallel: conformance::nodes]);
    all
}
