//! `kymactl why`.

mod operators;
mod subject;

use clap::Args;
use kube::{Api, Resource, ResourceExt as _, api::DynamicObject};
use kyma_api::Kyma;

use crate::{components, error::Error, hub::GlobalFlags, output};

use operators::Operators;
use subject::Subject;

/// Flags of `kymactl why`.
#[derive(Args)]
pub(crate) struct Why {
    /// The Kyma
    #[arg(value_parser = crate::name::kyma, add = crate::command::complete::kymas())]
    kyma: String,
    /// Admin server of an operator, such as http://127.0.0.1:8080; repeatable
    #[arg(long = "operator", value_name = "URL")]
    operators: Vec<String>,
    #[command(flatten)]
    hub: GlobalFlags,
}

impl Why {
    pub(crate) async fn run(self) -> Result<(), Error> {
        let (hub, namespace) = (self.hub.client().await?, self.hub.namespace());
        let operators = Operators::at(&self.operators)?;
        let kymas: Api<Kyma> = Api::namespaced(hub.clone(), namespace);
        let missing = || Error::no_kyma(&self.kyma, namespace);
        let kyma = kymas.get_opt(&self.kyma).await?.ok_or_else(missing)?;
        let components = components::of(&hub, namespace, &kyma).await?;
        let mut subjects = vec![Subject::of(&Kyma::kind(&()), &kyma)?];
        for component in &components {
            subjects.push(Subject::of(&kind_of(component), component)?);
        }
        for subject in &mut subjects {
            subject.diagnoses = operators.diagnoses(namespace, subject).await?;
        }
        let paragraphs = || subjects.iter().map(Subject::to_string).collect::<Vec<_>>().join("\n");
        let names = || subjects.iter().map(Subject::qualified_name).collect();
        output::result(&self.hub.format().text(&subjects, paragraphs, names)?)?;
        if self.operators.is_empty() {
            output::remark(
                "only the operators know queues, next retries and last answers: name them with --operator",
            );
        }
        Ok(())
    }
}

fn kind_of(component: &DynamicObject) -> String {
    component.types.as_ref().map_or_else(|| component.name_any(), |types| types.kind.clone())
}
