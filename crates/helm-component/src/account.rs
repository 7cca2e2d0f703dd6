//! Selects the ServiceAccount that a component impersonates on its target. Pure.

use kyma_api::{HelmComponentSpec, Reason};
use kyma_controller::{Failure, is_object_name};
use kyma_targets::ServiceAccount;

use crate::args::AccountArgs;

/// Configuration of ServiceAccounts by the tenant's flags.
#[derive(Debug, Clone)]
pub(crate) struct Accounts {
    flags: AccountArgs,
    namespace: String,
}

impl Accounts {
    /// Reads the flags. `target_namespace` is the namespace of the ServiceAccounts if the flags name none.
    pub(crate) fn new(flags: &AccountArgs, target_namespace: &str) -> Self {
        let own = Some(flags.service_account_namespace.as_str()).filter(|namespace| !namespace.is_empty());
        Self { flags: flags.clone(), namespace: own.unwrap_or(target_namespace).to_owned() }
    }

    /// Returns the ServiceAccount that a component impersonates; `None` for the kubeconfig's user.
    pub(crate) fn of(&self, spec: &HelmComponentSpec) -> Result<Option<ServiceAccount>, Failure> {
        let default = Some(self.flags.default_service_account.as_str()).filter(|name| !name.is_empty());
        let Some(name) = spec.service_account_name.as_deref().or(default) else {
            let message = "spec.serviceAccountName is missing, and --require-service-account is set";
            let missing = || Failure::new(Reason::ServiceAccountMissing, message);
            return if self.flags.require_service_account { Err(missing()) } else { Ok(None) };
        };
        let account = ServiceAccount::new(&self.namespace, name).filter(|_| is_object_name(name));
        let invalid = || {
            let message = "spec.serviceAccountName is not a name that a ServiceAccount can have";
            Failure::new(Reason::SpecInvalid, message)
        };
        account.map(Some).ok_or_else(invalid)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn account(flags: &AccountArgs, name: Option<&str>) -> Result<Option<String>, Reason> {
        let mut spec: HelmComponentSpec = serde_json::from_value(json!({"source": {}})).unwrap();
        spec.service_account_name = name.map(str::to_owned);
        let found = Accounts::new(flags, "kyma-system").of(&spec);
        found.map(|found| found.map(|one| one.to_string())).map_err(|failure| failure.reason)
    }

    fn user(text: &str) -> String {
        format!("system:serviceaccount:{text}")
    }

    #[test]
    fn component_impersonates_its_account_in_namespace_of_the_flag() {
        let none = AccountArgs::default();
        assert_eq!(account(&none, None), Ok(None));
        assert_eq!(account(&none, Some("a")), Ok(Some(user("kyma-system:a"))));
        let elsewhere = AccountArgs { service_account_namespace: "tenants".to_owned(), ..none };
        assert_eq!(account(&elsewhere, Some("a")), Ok(Some(user("tenants:a"))));
    }

    #[test]
    fn missing_account_uses_default_or_is_refused_where_required() {
        let demanded = AccountArgs { require_service_account: true, ..AccountArgs::default() };
        assert_eq!(account(&demanded, None), Err(Reason::ServiceAccountMissing));
        assert_eq!(account(&demanded, Some("a")), Ok(Some(user("kyma-system:a"))));
        let default = AccountArgs { default_service_account: "d".to_owned(), ..demanded };
        assert_eq!(account(&default, None), Ok(Some(user("kyma-system:d"))));
        assert_eq!(account(&default, Some("a")), Ok(Some(user("kyma-system:a"))));
    }

    #[test]
    fn a_name_that_leads_to_another_user_is_refused() {
        for name in ["", "a:b", "../a", "-a", "a\nb"] {
            assert_eq!(account(&AccountArgs::default(), Some(name)), Err(Reason::SpecInvalid), "{name:?}");
        }
    }
}
