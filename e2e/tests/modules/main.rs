//! Publishes, enables, upgrades and disables third-party modules, after which the target is as before; and requires
//! modules to be signed.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test ends where it fails, and lists what it leaves out"
)]

mod layout;
mod ocm;
mod scenario;
mod signed;
mod used;

use e2e::inputs;
use e2e::landscape::{Landscape, Options};
use tokio::sync::Mutex;

/// Lets one test run at a time: small machines cannot run two landscapes.
static EXCLUSIVE: Mutex<()> = Mutex::const_new(());

async fn landscape() -> Landscape {
    Landscape::start(Options { targets: 1, ..Options::default() }).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn e10_modules_are_installed_upgraded_and_removed_completely() {
    let _turn = EXCLUSIVE.lock().await;
    let Some(inputs) = testbed::inputs("third-party modules").unwrap() else { return };
    let modules = inputs::modules::all(&inputs).unwrap();
    assert!(!modules.is_empty(), "no modules in {}", inputs.display());
    let landscape = landscape().await;
    let scenario = scenario::Scenario::new(&landscape, &modules).unwrap();
    scenario.publish().await.unwrap();
    let before = scenario.begin().await.unwrap();
    scenario.enable().await.unwrap();
    scenario.upgrade().await.unwrap();
    scenario.remove_while_used().await.unwrap();
    let kept = scenario.disable(&before).await.unwrap();
    println!("{} modules; the target keeps {} objects:", modules.len(), kept.len());
    for difference in kept {
        println!("  {difference}");
    }
    landscape.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn component_versions_of_modulectl_are_installed_as_they_are() {
    let _turn = EXCLUSIVE.lock().await;
    let Some(inputs) = testbed::inputs("component versions made by modulectl").unwrap() else { return };
    let published = layout::all(&inputs).unwrap();
    assert!(!published.is_empty(), "no component versions in {}", inputs.display());
    let landscape = landscape().await;
    for kept in Box::pin(ocm::install_all(&landscape, &published)).await.unwrap() {
        println!("kept: {kept}");
    }
    landscape.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_setting_refuses_unsigned_modules_of_a_locked_registry() {
    let _turn = EXCLUSIVE.lock().await;
    let options = Options { targets: 1, registry_login: Some(signed::LOGIN), ..Options::default() };
    let landscape = Landscape::start(options).await.unwrap();
    Box::pin(signed::unsigned_module_is_refused(&landscape)).await.unwrap();
    landscape.stop().await.unwrap();
}
