//! Migrates Kymas from Kyma Lifecycle Manager (KLM) and back, starting from objects that a real KLM left.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "../modules/layout.rs"]
mod layout;
mod mandatory;
mod recorded;
mod scenario;

use e2e::landscape::{Landscape, Options};
use tokio::sync::Mutex;

use recorded::Situation;
use scenario::{Scenario, allow_pulls, publish};

/// Numbers of the recorded situations whose Kyma is handed over and given back.
const SITUATIONS: [u32; 7] = [1, 2, 3, 4, 6, 7, 8];
/// Situation in which `kymactl migrate klm` is killed repeatedly, during the hand-over and during the rollback.
const KILLED_SITUATION: u32 = 2;
/// Situation in which a module is made mandatory.
const MANDATORY_SITUATION: u32 = 3;
/// Situation in which the Kyma is being deleted.
const DELETING_SITUATION: u32 = 10;
/// Situation that is handed over with a registry that requires a password.
const LOCKED_SITUATION: u32 = 1;

/// User and password of the registry.
const LOGIN: (&str, &str) = ("puller", "registry-password");
/// Name of the Secret with the registry's password.
const PULL_SECRET: &str = "oci-registry-cred";

/// Lets one test run at a time: small machines cannot run two landscapes.
static EXCLUSIVE: Mutex<()> = Mutex::const_new(());

#[tokio::test(flavor = "multi_thread")]
async fn kymas_of_klm_are_handed_over_and_given_back() {
    let _turn = EXCLUSIVE.lock().await;
    let Some(inputs) = testbed::inputs("recordings of Kyma Lifecycle Manager").unwrap() else { return };
    let environment = vec![("MANIFEST_MIRROR".to_owned(), "true".to_owned())];
    let landscape = Landscape::start(Options { environment, ..Options::default() }).await.unwrap();
    publish(&landscape, &inputs).await.unwrap();
    for number in SITUATIONS {
        let started = std::time::Instant::now();
        let mut situation = Situation::find(&inputs, number).unwrap();
        if number == MANDATORY_SITUATION {
            situation = situation.with_mandatory("template-operator").unwrap();
        }
        let scenario = Scenario::begin(&landscape, situation, number).await.unwrap();
        if number == 1 {
            scenario.refuses_while_klm_runs().await.unwrap();
        }
        scenario.dry_run_writes_nothing().await.unwrap();
        if number == KILLED_SITUATION {
            scenario.is_killed_again_and_again(&[]).await.unwrap();
        }
        scenario.hand_over().await.unwrap();
        if number == KILLED_SITUATION {
            scenario.is_killed_again_and_again(&["--rollback"]).await.unwrap();
        }
        scenario.give_back().await.unwrap();
        scenario.end().await.unwrap();
        println!("situation {number}: {:?}", started.elapsed());
    }
    let situation = Situation::find(&inputs, DELETING_SITUATION).unwrap();
    let scenario = Scenario::begin(&landscape, situation, DELETING_SITUATION).await.unwrap();
    scenario.leaves_what_is_being_deleted().await.unwrap();
    landscape.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn kyma_is_handed_over_while_its_registry_asks_for_a_password() {
    let _turn = EXCLUSIVE.lock().await;
    let Some(inputs) = testbed::inputs("recordings of Kyma Lifecycle Manager").unwrap() else { return };
    let environment = vec![
        ("MANIFEST_MIRROR".to_owned(), "true".to_owned()),
        ("OCI_REGISTRY_CRED_SECRET".to_owned(), PULL_SECRET.to_owned()),
    ];
    let options = Options { environment, registry_login: Some(LOGIN), ..Options::default() };
    let landscape = Landscape::start(options).await.unwrap();
    publish(&landscape, &inputs).await.unwrap();
    let situation = Situation::find(&inputs, LOCKED_SITUATION).unwrap();
    let scenario = Scenario::begin(&landscape, situation, LOCKED_SITUATION).await.unwrap();
    scenario.refuses_while_klm_runs().await.unwrap();
    scenario.waits_for_pull_secret(PULL_SECRET).await.unwrap();
    allow_pulls(&landscape, PULL_SECRET, LOGIN).await.unwrap();
    scenario.hand_over().await.unwrap();
    scenario.give_back().await.unwrap();
    scenario.end().await.unwrap();
    landscape.stop().await.unwrap();
}
