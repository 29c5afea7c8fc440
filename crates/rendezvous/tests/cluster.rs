//! The places that launchers assign, and the refusals.

use proptest::prelude::*;
use std::collections::HashMap;
use towers_rendezvous::{Error, Place, Result, Source, discover, is_restarted};

/// The variables of `A=1 B=2`; `_` in a value stands for a space. Of a repeated one the first counts.
fn environment(variables: &str) -> impl Fn(&str) -> Option<String> {
    let pairs = variables.split_whitespace().filter_map(|pair| pair.split_once('='));
    let pairs: HashMap<String, String> =
        pairs.rev().map(|(name, value)| (name.to_owned(), value.replace('_', " "))).collect();
    move |name| pairs.get(name).cloned()
}

fn found(variables: &str) -> Result<Option<Place>> {
    discover(environment(variables))
}

fn place(variables: &str) -> Place {
    found(variables).unwrap_or_else(|error| panic!("{variables}: {error}")).expect(variables)
}

fn refusal(variables: &str) -> String {
    match found(variables) {
        Err(error) => error.to_string(),
        Ok(place) => panic!("{variables}: {place:?}"),
    }
}

fn ranks(variables: &str) -> (usize, usize, usize, usize) {
    let place = place(variables);
    (place.rank, place.world, place.local_rank, place.local_world)
}

const TORCHRUN: &str = "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=n0 MASTER_PORT=29400 \
                        TORCHELASTIC_RUN_ID=job TORCHELASTIC_RESTART_COUNT=2";
const SRUN: &str = "SLURM_PROCID=5 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_NTASKS=7 SLURM_JOB_ID=123456 SLURM_STEP_ID=3 \
                    SLURM_STEP_TASKS_PER_NODE=4,3 SLURM_JOB_NODELIST=gpu[07-08]";
const OPEN_MPI: &str = "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 \
                        OMPI_COMM_WORLD_LOCAL_SIZE=2";
const MPICH: &str = "PMI_RANK=3 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2";
const TRAIN_JOB: &str = "PET_NODE_RANK=1 PET_NNODES=2 PET_NPROC_PER_NODE=auto JOB_COMPLETION_INDEX=1 \
                         PET_MASTER_ADDR=run-node-0-0.run PET_MASTER_PORT=29400";
const LEADER_WORKER_SET: &str = "LWS_WORKER_INDEX=1 LWS_GROUP_SIZE=2 LWS_LEADER_ADDRESS=run-0.run.default";
const INDEXED_JOB: &str = "JOB_COMPLETION_INDEX=1 WORLD_SIZE=2 MASTER_ADDR=run-workers-0-0.run";

#[test]
fn nothing_is_nothing() {
    for none in [
        "",
        "HOME=/",
        "MASTER_ADDR=n0 MASTER_PORT=1",
        "WORLD_SIZE=1",
        "LOCAL_RANK=0",
        "TF_CONFIG={}",
        "TF_CONFIG=",
    ] {
        assert_eq!(found(none).unwrap(), None, "{none}");
    }
}

#[test]
fn torchrun_says_everything() {
    let expected = Place {
        rank: 5,
        world: 8,
        local_rank: 1,
        local_world: 4,
        one_device: true,
        master: Some(("n0".to_owned(), 29400)),
        job: Some("job".to_owned()),
        restart: 2,
        source: Source::Torchrun,
    };
    assert_eq!(place(TORCHRUN), expected);
    assert!(!expected.is_first());
}

#[test]
fn a_launch_of_our_own_has_its_mark() {
    let launched = place("RANK=0 WORLD_SIZE=2 TOWERS_LAUNCH_ID=x TOWERS_RESTART_COUNT=1");
    assert_eq!((launched.source, launched.restart), (Source::Launch, 1));
    assert!(launched.is_first());
}

/// Kubernetes' `PyTorchJob` with one process in a pod sets no local ranks.
#[test]
fn plain_variables_are_enough() {
    let pod = place("RANK=1 WORLD_SIZE=3 MASTER_ADDR=job-master-0 MASTER_PORT=23456");
    assert_eq!((pod.source, pod.local_rank, pod.local_world), (Source::Variables, 0, 1));
    assert_eq!(pod.master, Some(("job-master-0".to_owned(), 23456)));
    assert_eq!(place("RANK=0 WORLD_SIZE=1 MASTER_ADDR=[::1]").master, Some(("::1".to_owned(), 29500)));
}

#[test]
fn srun_names_the_first_machine() {
    let task = place(SRUN);
    assert_eq!((task.rank, task.world, task.local_rank, task.local_world), (5, 7, 1, 3));
    assert_eq!(task.master, Some(("gpu07".to_owned(), 23459)));
    assert_eq!((task.job.as_deref(), task.source), (Some("123456.3"), Source::Slurm));
    let scripted = place(&format!("{SRUN} MASTER_ADDR=other MASTER_PORT=4000 WORLD_SIZE=7"));
    assert_eq!(scripted.master, Some(("other".to_owned(), 4000)));
    assert_eq!(place(&format!("{SRUN} MASTER_PORT=4000")).master, Some(("gpu07".to_owned(), 4000)));
}

/// A step can be smaller than the job that it is a part of.
#[test]
fn the_step_counts_and_not_the_job() {
    let step = "SLURM_PROCID=1 SLURM_LOCALID=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_NTASKS=64 \
                SLURM_STEP_NODELIST=b SLURM_JOB_NODELIST=a,b SLURM_NTASKS_PER_NODE=2";
    let task = place(step);
    assert_eq!((task.world, task.local_world), (2, 2));
    assert_eq!(task.master.map(|(host, _)| host), Some("b".to_owned()));
}

#[test]
fn the_batch_script_is_no_task() {
    let batch = "SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=8 SLURM_JOB_ID=1 SLURM_JOB_NODELIST=a";
    assert_eq!(found(batch).unwrap(), None);
    for step in ["4294967291", "4294967290", "batch", "interactive"] {
        assert_eq!(found(&format!("{batch} SLURM_STEP_ID={step}")).unwrap(), None, "{step}");
    }
    assert_eq!(place(&format!("{batch} SLURM_STEP_ID=0")).world, 8);
}

/// SLURM starts the batch script again, and every process that it starts. The place does not depend on that.
#[test]
fn a_requeued_job_is_restarted_whoever_launches() {
    let job = "SLURM_JOB_ID=1 SLURM_PROCID=0 SLURM_NTASKS=2";
    let launchers =
        [SRUN, OPEN_MPI, MPICH, "", "RANK=0 WORLD_SIZE=2 TOWERS_LAUNCH_ID=x", "RANK=0 WORLD_SIZE=2"];
    let restarted = |variables: &str| is_restarted(environment(variables));
    for launcher in launchers {
        for (count, expected) in
            [("", false), ("SLURM_RESTART_COUNT=0", false), ("SLURM_RESTART_COUNT=2", true)]
        {
            let variables = format!("{launcher} {job} {count}");
            assert_eq!(restarted(&variables).unwrap(), expected, "{variables}");
        }
    }
    assert!(restarted(TORCHRUN).unwrap() && !restarted("SLURM_RESTART_COUNT=2").unwrap());
    assert!(restarted(&format!("{job} SLURM_RESTART_COUNT=x")).is_err());
    let launched = format!("RANK=0 WORLD_SIZE=2 TOWERS_LAUNCH_ID=x {job} SLURM_RESTART_COUNT=2");
    assert_eq!(place(&launched).restart, 0);
}

#[test]
fn both_mpi_launchers_are_known() {
    assert_eq!(ranks(OPEN_MPI), (3, 4, 1, 2));
    assert_eq!(ranks(MPICH), (3, 4, 1, 2));
    assert_eq!(place(OPEN_MPI).source, Source::OpenMpi);
    assert_eq!(place(MPICH).source, Source::Mpich);
    assert_eq!(place(MPICH).master, None);
    assert_eq!(place(&format!("{MPICH} MASTER_ADDR=n0")).master, Some(("n0".to_owned(), 29500)));
}

fn tf_config(task: &str) -> String {
    let cluster = r#""chief":["a:2222"],"worker":["b:2222","b:2223","c:2222"]"#;
    format!("TF_CONFIG={{\"cluster\":{{{cluster}}},\"task\":{task}}}")
}

#[test]
fn the_chief_of_a_tf_config_is_rank_0() {
    let chief = place(&tf_config(r#"{"type":"chief","index":0}"#));
    assert_eq!((chief.rank, chief.world, chief.source), (0, 4, Source::TfConfig));
    assert_eq!(chief.master, Some(("a".to_owned(), 2222)));
    assert_eq!(ranks(&tf_config(r#"{"type":"worker","index":1}"#)), (2, 4, 1, 2));
    assert_eq!(ranks(&tf_config(r#"{"type":"worker","index":"1"}"#)), (2, 4, 1, 2));
    let alone = r#"TF_CONFIG={"cluster":{"worker":["[::1]:1"]},"task":{"type":"worker","index":0}}"#;
    assert_eq!((place(alone).rank, place(alone).world), (0, 1));
}

#[test]
fn tf_configs_that_make_no_sense_are_refused() {
    for (task, names) in [
        (r#"{"type":"ps","index":0}"#, "`worker` or `chief`, not `ps`"),
        (r#"{"type":"evaluator","index":0}"#, "not `evaluator`"),
        (r#"{"index":0}"#, "not `nothing`"),
        (r#"{"type":"worker","index":3}"#, "the place of an address in its list"),
        (r#"{"type":"worker","index":-1}"#, "the place of an address in its list"),
        (r#"{"type":"worker","index":"-1"}"#, "the place of an address in its list"),
        (r#"{"type":"worker","index":"one"}"#, "the place of an address in its list"),
        (r#"{"type":"worker"}"#, "the place of an address in its list"),
    ] {
        let told = refusal(&tf_config(task));
        assert!(told.starts_with("TF_CONFIG is `") && told.contains(names), "{told}");
    }
    let sparse = r#"{"sparseCluster":{"worker":{"1":"b:1"}},"task":{"type":"worker","index":1}}"#;
    let told = refusal(&format!("TF_CONFIG={sparse}"));
    assert!(told.contains("leave `enableDynamicWorker` of the TFJob out"), "{told}");
    for config in [
        "x",
        "[]",
        r#"{"cluster":1}"#,
        r#"{"cluster":{}}"#,
        r#"{"cluster":{"worker":["a"]},"task":{"type":"worker","index":0}}"#,
        r#"{"cluster":{"worker":[":1"]},"task":{"type":"worker","index":0}}"#,
        r#"{"cluster":{"worker":["a:0"]},"task":{"type":"worker","index":0}}"#,
        r#"{"cluster":{"worker":["a:99999"]},"task":{"type":"worker","index":0}}"#,
        r#"{"cluster":{"worker":{}},"task":{"type":"worker","index":0}}"#,
        r#"{"cluster":{"chief":["a:1","b:1"]},"task":{"type":"chief","index":0}}"#,
        r#"{"cluster":{"worker":["a:1"],"ps":["b:1"]},"task":{"type":"worker","index":0}}"#,
    ] {
        assert!(refusal(&format!("TF_CONFIG={config}")).starts_with("TF_CONFIG is `"), "{config}");
    }
}

#[test]
fn garbage_names_the_variable_its_value_and_what_is_accepted() {
    for (variables, told) in [
        ("RANK=x WORLD_SIZE=2", "RANK is `x`, but must be a whole number from 0 to 1048575"),
        ("RANK=-1 WORLD_SIZE=2", "RANK is `-1`, but must be a whole number"),
        ("RANK=+1 WORLD_SIZE=2", "RANK is `+1`, but must be a whole number"),
        ("RANK= WORLD_SIZE=2", "RANK is ``, but must be a whole number"),
        ("RANK=0 WORLD_SIZE=0", "WORLD_SIZE is `0`, but must be a whole number from 1"),
        ("RANK=2 WORLD_SIZE=2", "RANK is `2`, but must be below WORLD_SIZE, which is 2"),
        ("RANK=0 WORLD_SIZE=99999999999999999999", "WORLD_SIZE is `99999999999999999999`, but must be"),
        ("RANK=0", "WORLD_SIZE is not set, but must be set, since RANK is"),
        ("WORLD_SIZE=4", "RANK is not set, but must be set, since WORLD_SIZE is 4"),
        ("RANK=0 WORLD_SIZE=2 LOCAL_RANK=1", "LOCAL_WORLD_SIZE is not set"),
        (
            "RANK=0 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=3",
            "LOCAL_WORLD_SIZE is `3`, but must be at most",
        ),
        (
            "RANK=0 WORLD_SIZE=2 MASTER_ADDR=",
            "MASTER_ADDR is ``, but must be the name or address of a machine",
        ),
        ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a_b", "MASTER_ADDR is `a b`, but must be"),
        ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=0", "MASTER_PORT is `0`, but must be"),
        ("RANK=0 WORLD_SIZE=2 MASTER_PORT=65536", "MASTER_PORT is `65536`, but must be"),
        ("RANK=0 WORLD_SIZE=2 TORCHELASTIC_RESTART_COUNT=x", "TORCHELASTIC_RESTART_COUNT is `x`"),
        ("OMPI_COMM_WORLD_RANK=4 OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK is `4`, but must be below"),
        ("PMI_RANK=1", "PMI_SIZE is not set"),
        ("PET_NODE_RANK=0 PET_NNODES=1:4", "PET_NNODES is `1:4`, but must be a whole number"),
        ("PET_NODE_RANK=0", "PET_NNODES is not set, but must be set, since PET_NODE_RANK is"),
        (
            "PET_NODE_RANK=0 PET_NNODES=2 PET_MASTER_ADDR=a_b",
            "PET_MASTER_ADDR is `a b`, but must be the name",
        ),
        ("PET_NODE_RANK=0 PET_NNODES=2 PET_MASTER_PORT=x", "PET_MASTER_PORT is `x`, but must be"),
        ("LWS_WORKER_INDEX=2 LWS_GROUP_SIZE=2", "LWS_WORKER_INDEX is `2`, but must be below LWS_GROUP_SIZE"),
        ("LWS_WORKER_INDEX=0 LWS_GROUP_SIZE=1 LWS_LEADER_ADDRESS=", "LWS_LEADER_ADDRESS is ``, but must be"),
        ("JOB_COMPLETION_INDEX=2 WORLD_SIZE=2", "JOB_COMPLETION_INDEX is `2`, but must be below WORLD_SIZE"),
        ("JOB_COMPLETION_INDEX= WORLD_SIZE=2", "JOB_COMPLETION_INDEX is ``, but must be a whole number"),
        ("SLURM_PROCID=0 SLURM_STEP_ID=x", "SLURM_STEP_ID is `x`"),
        ("SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_NTASKS=1", "SLURM_LOCALID is not set"),
    ] {
        let refusal = refusal(variables);
        assert!(refusal.starts_with(told), "{variables}: {refusal}");
    }
    let hosts = refusal(&SRUN.replace("gpu[07-08]", "gpu[8-7]"));
    assert_eq!(
        hosts,
        "SLURM_JOB_NODELIST is `gpu[8-7]`, but must be a list of machines, such as node[01-03,7]"
    );
    let tasks = refusal(&SRUN.replace("NODEID=1", "NODEID=2"));
    assert!(tasks.starts_with("SLURM_STEP_TASKS_PER_NODE is `4,3`, but must be"), "{tasks}");
}

#[test]
fn long_values_are_told_in_short() {
    let told = refusal(&format!("RANK={}\u{7} WORLD_SIZE=1", "1".repeat(5000)));
    assert!(told.len() < 250 && told.contains("111...`"), "{told}");
    assert!(refusal("RANK=1\u{7} WORLD_SIZE=1").contains(r"`1\u{7}`"));
}

#[test]
fn contradictions_name_both_variables_and_values() {
    for (variables, told) in [
        (
            format!("RANK=2 WORLD_SIZE=4 {OPEN_MPI}"),
            "RANK is 2, but OMPI_COMM_WORLD_RANK is 3: unset the one that is left from another launcher",
        ),
        (format!("RANK=0 WORLD_SIZE=1 {OPEN_MPI}"), "WORLD_SIZE is 1, but OMPI_COMM_WORLD_SIZE is 4"),
        (format!("RANK=3 WORLD_SIZE=7 {SRUN}"), "RANK is 3, but SLURM_PROCID is 5"),
        (format!("WORLD_SIZE=8 {SRUN}"), "WORLD_SIZE is 8, but the number of tasks by SLURM is 7"),
        (
            format!("{OPEN_MPI} {}", MPICH.replace("PMI_RANK=3", "PMI_RANK=0")),
            "OMPI_COMM_WORLD_RANK is 3, but PMI_RANK",
        ),
        (format!("RANK=1 WORLD_SIZE=8 {TRAIN_JOB}"), "WORLD_SIZE is 8, but PET_NNODES is 2"),
        (format!("RANK=0 WORLD_SIZE=2 {TRAIN_JOB}"), "RANK is 0, but PET_NODE_RANK is 1"),
        (format!("WORLD_SIZE=8 {TRAIN_JOB}"), "PET_NNODES is 2, but WORLD_SIZE is 8"),
        (
            format!("{TRAIN_JOB} {LEADER_WORKER_SET}").replace("GROUP_SIZE=2", "GROUP_SIZE=3"),
            "PET_NNODES is 2, but LWS_GROUP_SIZE is 3",
        ),
        (format!("RANK=0 WORLD_SIZE=2 {LEADER_WORKER_SET}"), "RANK is 0, but LWS_WORKER_INDEX is 1"),
        (
            format!("{TORCHRUN} {}", tf_config(r#"{"type":"chief","index":0}"#)),
            "WORLD_SIZE is 8, but the number of processes by TF_CONFIG is 4",
        ),
    ] {
        let error = found(&variables).unwrap_err();
        assert!(matches!(error, Error::Contradiction { .. }), "{error}");
        assert!(error.to_string().starts_with(told), "{error}");
    }
}

#[test]
fn sources_that_agree_are_fine() {
    assert_eq!(place(&format!("RANK=3 WORLD_SIZE=4 {OPEN_MPI} {MPICH}")).source, Source::Variables);
    assert_eq!(place(&format!("RANK=5 WORLD_SIZE=7 {SRUN}")).source, Source::Variables);
    // `srun --mpi=pmi2` sets two variables of MPICH, but only SLURM's own describe the machine.
    let pmi2 = place(&format!("PMI_RANK=5 PMI_SIZE=7 {SRUN}"));
    assert_eq!((pmi2.source, pmi2.local_world), (Source::Slurm, 3));
}

/// `srun torchrun` and `mpirun` within an allocation: the outer launcher counts agents, one a machine.
#[test]
fn the_innermost_launcher_counts() {
    assert_eq!(place(&format!("{TORCHRUN} {SRUN} {OPEN_MPI}")).rank, 5);
    assert_eq!(place(&format!("{TORCHRUN} {SRUN}")).source, Source::Torchrun);
    assert_eq!(place(&format!("{OPEN_MPI} {SRUN}")).source, Source::OpenMpi);
    assert_eq!(place(&format!("{MPICH} {SRUN}")).source, Source::Mpich);
    for pod in [TRAIN_JOB, LEADER_WORKER_SET, INDEXED_JOB] {
        for (launcher, source) in
            [(OPEN_MPI, Source::OpenMpi), (SRUN, Source::Slurm), (TORCHRUN, Source::Torchrun)]
        {
            // `WORLD_SIZE` must fit every launcher.
            let pod = pod.replace("WORLD_SIZE=2", "");
            assert_eq!(place(&format!("{launcher} {pod}")).source, source, "{pod}");
        }
    }
}

/// A pod has one process, which takes all its GPUs.
#[test]
fn pods_of_kubernetes_have_ranks() {
    let first = |host: &str, port| Some((host.to_owned(), port));
    for (pod, source, master) in [
        (TRAIN_JOB, Source::TrainJob, first("run-node-0-0.run", 29400)),
        (LEADER_WORKER_SET, Source::LeaderWorkerSet, first("run-0.run.default", 29500)),
        (INDEXED_JOB, Source::IndexedJob, first("run-workers-0-0.run", 29500)),
    ] {
        assert_eq!(place(pod), Place { master, ..Place::new(source, 1, 2) });
        let moved = place(&format!("MASTER_ADDR=other MASTER_PORT=4000 {pod}"));
        assert_eq!(moved.master, first("other", 4000), "{pod}");
        assert_eq!(place(&format!("MASTER_PORT=4000 {pod}")).master.map(|(_, port)| port), Some(4000));
    }
    assert_eq!(place(&TRAIN_JOB.replace("auto", "8")), place(TRAIN_JOB));
}

/// Each pod of a search for the best seed trains alone. In a set of jobs, several pods have the same index.
#[test]
fn the_index_of_a_pod_is_its_rank_where_the_manifest_says_so() {
    assert_eq!(found("JOB_COMPLETION_INDEX=3").unwrap(), None);
    assert_eq!(found("JOB_COMPLETION_INDEX=3 MASTER_ADDR=a PET_NNODES=1:4").unwrap(), None);
    let several = place("RANK=3 WORLD_SIZE=4 JOB_COMPLETION_INDEX=0");
    assert_eq!((several.rank, several.source), (3, Source::Variables));
    assert_eq!(place("JOB_COMPLETION_INDEX=0 WORLD_SIZE=1").world, 1);
}

const NAMES: &str = "\
    RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID \
    TORCHELASTIC_RESTART_COUNT TOWERS_LAUNCH_ID TOWERS_RESTART_COUNT OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE \
    OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS \
    TF_CONFIG SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_NTASKS SLURM_STEP_NUM_TASKS SLURM_JOB_ID \
    SLURM_STEP_ID SLURM_STEP_TASKS_PER_NODE SLURM_NTASKS_PER_NODE SLURM_JOB_NODELIST SLURM_RESTART_COUNT \
    PET_NODE_RANK PET_NNODES PET_MASTER_ADDR PET_MASTER_PORT LWS_WORKER_INDEX LWS_GROUP_SIZE LWS_LEADER_ADDRESS \
    JOB_COMPLETION_INDEX";

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(NAMES.split_whitespace().collect::<Vec<_>>())
}

/// Small numbers, so that some environments make sense, and broken pieces of all other texts.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => (0u8..4).prop_map(|n| n.to_string()),
        1 => any::<i128>().prop_map(|n| n.to_string()),
        1 => "[a-c0-9\\[\\],()x-]{0,12}",
        1 => "\\PC{0,8}",
        1 => r#"\{"cluster":\{"(worker|chief|ps)":\["a:1"(,"b:2")?\]\},"task":\{"type":"(worker|ps)","index":[0-2]\}\}?"#,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn any_environment_gives_a_place_that_makes_sense_or_one_sentence(
        variables in prop::collection::hash_map(name(), value(), 0..12),
    ) {
        match discover(|name| variables.get(name).cloned()) {
            Ok(None) => {}
            Ok(Some(place)) => {
                prop_assert!(place.rank < place.world && place.local_rank < place.local_world);
                prop_assert!(place.local_world <= place.world, "{:?}", place);
                prop_assert!(place.master.is_none_or(|(host, port)| !host.is_empty() && port > 0));
            }
            Err(error) => {
                let told = error.to_string();
                prop_assert!(matches!(error, Error::Variable { .. } | Error::Contradiction { .. }), "{}", told);
                prop_assert!(!told.contains('\n') && told.len() < 1000, "{}", told);
            }
        }
    }
}
