//! The table of reasons. The runbook has a page for each.

use super::class::ErrorClass;

/// A reason that another team defines for its component kind, in addition to the common reasons.
///
/// Created by [`Reason::own`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnReason {
    pub(super) word: &'static str,
    pub(super) class: Option<ErrorClass>,
    pub(super) summary: &'static str,
}

macro_rules! reasons {
    ($( $(#[$section:meta])* $name:ident $(: $class:ident)? => $summary:literal; )+) => {
        /// The stable reason of a state, the same in condition, event and metric.
        ///
        /// Reasons are API: alerts and tools match them. They are added, never renamed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Reason {
            $( #[doc = $summary] $name, )+
            /// A reason of a single reconciler; see [`Reason::own`].
            Own(OwnReason),
        }

        impl Reason {
            const ALL: &'static [Self] = &[ $( Self::$name, )+ ];

            /// Returns every common reason, grouped by subject.
            pub const fn all() -> &'static [Self] {
                Self::ALL
            }

            /// Returns the reason as in conditions.
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$name => stringify!($name), )+ Self::Own(own) => own.word }
            }

            /// Returns one line: the meaning and what to do.
            pub const fn summary(self) -> &'static str {
                match self { $( Self::$name => $summary, )+ Self::Own(own) => own.summary }
            }

            /// Returns how to handle the failure, or `None` without a failure.
            pub const fn class(self) -> Option<ErrorClass> {
                match self {
                    $( Self::$name => reasons!(@class $($class)?), )+
                    Self::Own(own) => own.class,
                }
            }

            /// Returns the reason that a stored condition names, also by its name in an earlier version; `None` for a
            /// reason of another system.
            pub fn from_word(word: &str) -> Option<Self> {
                let known = Self::ALL.iter().copied().find(|reason| reason.as_str() == word);
                known.or_else(|| Self::from_former_name(word))
            }
        }
    };
    (@class) => { None };
    (@class $class:ident) => { Some(ErrorClass::$class) };
}

reasons! {
    // No failure.
    Ready => "The observed state is the desired one.";
    Succeeded => "This step is done for the current generation.";
    Progressing => "The operator is still working, or an object is not ready yet; wait, or check the objects that the message names.";
    Deleting => "The removal is in progress; the message says what it waits for.";
    Orphaned => "The component was deleted and its objects on the target stay; the next component of the same owner adopts them.";
    Suspended => "Reconciliation is suspended; remove the suspension to resume it.";
    SkipReconciliation => "The label operator.kyma-project.io/skip-reconciliation stops reconciliation; remove it to resume.";
    NotHandedOver => "Kyma Lifecycle Manager manages this Kyma, so the operators do not change it; hand it over with kymactl migrate klm.";
    AwaitingMaintenanceWindow => "An upgrade that needs downtime waits for the window that the message names; the installed version stays.";
    MaintenanceWindowSkipped => "Upgrades that need downtime do not wait, because skipMaintenanceWindows is set; the message says where.";
    HooksSkipped => "The chart has hooks that are not run; everything else is installed.";
    ContentWarning => "The content has a probable mistake; the message names it and how it was handled.";
    Unmanaged => "The user set managed to false, so the module is not managed; set it to true to resume its management.";
    CatalogSynced => "The target has copies of the part of the catalogue that is visible to this Kyma.";
    ClusterGone => "The Kyma is being deleted and its access Secret no longer exists; the objects on the cluster stay.";

    // Creation and deletion of a Kyma, in the words of Kyma Lifecycle Manager.
    RemoteInstallation => "kyma-operator created the Kyma on the target, in which users select modules.";
    SetKcpKymaStateDeleting => "The deletion of the Kyma began; its status says what the deletion waits for.";
    DeleteManifests => "The Kyma is being deleted: the removal of its components is requested.";
    DeleteSkrKyma => "The Kyma is being deleted: the target's Kyma and the operators' other objects there were deleted.";
    DropKymaFinalizer => "The Kyma is being deleted: kyma-operator removed its finalizer.";

    // Connection to the target.
    AwaitingAccess: Blocked => "The target has no access Secret yet; create it, and reconciliation starts automatically.";
    AccessAmbiguous: Blocked => "More than one access Secret is labelled with this Kyma's name; name one in kubeconfigSecretRef or delete the others.";
    AccessInvalid: Invalid => "The access Secret contains no usable kubeconfig; store one with an https server, an inline CA and inline credentials.";
    AccessRefused: Invalid => "The kubeconfig points to an address that this operator may not call; use an address that the operator reaches over the network, or allow this one by flag.";
    TargetUnreachable: Unreachable => "The target's apiserver can't be reached, or a proxy answers for it; check its address, network and whether the cluster runs.";
    TargetUntrusted: Unreachable => "The target's certificate doesn't match the CA in the kubeconfig; renew the access Secret.";
    TargetUnauthorized: Unreachable => "The target refuses the credentials; renew the access Secret.";
    TokenUnavailable: Transient => "The issuer of tokens for targets can't be reached or answers with errors; check its address and the network.";
    TokenRefused: Unreachable => "The issuer refuses a token for the target; allow the operator's ServiceAccount at the issuer, for the audience that the flags name.";
    TargetForbidden: Blocked => "The target's roles don't allow a call; grant what the message names to the user of the kubeconfig.";
    TargetTimeout: Unreachable => "The target didn't answer in time; check the load of its apiserver and the network.";
    TargetServerError: Unreachable => "The target's apiserver answers with server errors; check its health.";
    TargetThrottled: Transient => "The target's apiserver limits the rate of calls (429); the operator retries when the limit allows it.";
    TargetAnswerInvalid: Transient => "The target's answer is too large or invalid; check the proxies between the operator and the apiserver.";
    TargetChanged: Blocked => "The access Secret leads to another cluster than before; restore the Secret, or confirm with kymactl target adopt.";
    TargetInUse: Blocked => "Another Kyma already manages this cluster; delete one of the two.";
    TargetIsHub: Blocked => "The access Secret leads back to the hub; use another cluster or, to manage the hub itself, --local-kyma or single-cluster mode.";
    StampMismatch: Blocked => "The target was last managed by another hub or a later state of this one; confirm with kymactl target adopt.";

    // Stopped by users.
    Paused: Blocked => "A Pause applies to the object; reconciliation resumes when the Pause that the message names is deleted or ends.";
    DeletionUnconfirmed: Blocked => "An object with ownerReferences was deleted, maybe by the garbage collector, so nothing is removed from the target; confirm the deletion as the message says.";
    MassDeletion: Blocked => "Deletions on too many targets within ten minutes were stopped; find out why, and delete the Pause that the message names if the deletions are intended.";

    // The hub.
    HubUnavailable: Transient => "The hub's apiserver didn't answer or answered with an error; the operator retries.";
    HubForbidden: Blocked => "This operator's role on the hub doesn't allow a call; install the role of its own version.";
    HubRefused: Invalid => "The hub's apiserver refuses an object as invalid; correct the field that the message names.";
    ObjectTooLarge: Blocked => "An object is larger than its API server accepts; make its values, resource or module smaller.";
    DeadlineExceeded: Transient => "One reconcile took longer than allowed; the next one continues its work.";
    CacheFailed: Transient => "The operator's cache on disk can't be read or written; check its volume and free space.";
    SpecInvalid: Invalid => "Fields of the object contradict each other or one is missing; correct what the message names.";
    ServiceAccountMissing: Invalid => "helm-component requires a ServiceAccount to impersonate on the target, and the component names none; set spec.serviceAccountName.";
    Internal: Transient => "The operator has an internal error; report it with the operator's log.";

    // The user's selection and the catalogue.
    ModuleReleaseMetaMissing: Blocked => "No ModuleReleaseMeta has the module's name; correct the name or publish the module. The installed version stays.";
    ModuleTemplateMissing: Blocked => "No ModuleTemplate for the desired version exists; publish it. The installed version stays.";
    ModuleTemplateChanged: Blocked => "A ModuleTemplate was deleted and created again with content that differs from the installed content of its version; restore its former content and publish a new version. The installed version stays.";
    ChannelUnknown: Blocked => "The module isn't offered in this channel; choose a channel that its ModuleReleaseMeta lists.";
    ChannelAndVersion: Invalid => "The module names both a channel and a version; remove one of them.";
    VersionNotListed: Blocked => "The pinned version isn't offered; choose one that the ModuleReleaseMeta lists.";
    SourceMissing: Blocked => "The module has no source; set an OCM component in its ModuleReleaseMeta, or a chart or component in its ModuleTemplate.";
    DowngradeRefused: Blocked => "The desired version is lower than the installed one, which stays; choose one that is not lower.";
    MaintenanceWindowUnknown: Blocked => "An upgrade needs a maintenance window, and the policy defines none; correct the policy as the message says. The installed version stays.";
    VersionDeprecated: Blocked => "The version is no longer supported: existing installations stay, but it is not newly installed; choose the version that the message advises.";
    VersionUnknown: Blocked => "The running version can't be determined, so nothing is applied over it; label the module's manager with its version.";
    NotVisible: Blocked => "The module is beta, internal or restricted and not offered to this Kyma; an installed version stays.";
    Mandatory: Invalid => "The module is mandatory, so it is installed without an entry; remove it from the Kyma's modules.";
    SelectionInvalid: Invalid => "The target's Kyma contains a value that is invalid for a module; correct the field that the message names.";
    TooManyModules: Invalid => "The Kyma lists more modules than allowed; remove some.";
    NotYetSupported: Invalid => "The object uses a field that this version accepts but does not support yet; remove it or wait for a version that supports it.";

    // Secrets of the hub that are copied to targets.
    CopiedSecretMissing: Invalid => "A Secret to copy to the target does not exist on the hub; create it. The copy on the target stays.";
    CopyNotAllowed: Invalid => "A Secret of the hub isn't allowed to be copied to targets; to allow it, label it as the message says.";
    CopyRefused: Invalid => "A Secret of the hub is never copied to targets: it gives access to one of them, or its type is not allowed; use another Secret.";
    InjectionWithoutModule: Invalid => "A Secret of the hub from which the module takes data names no module; if it belongs to the module, label it as the message says.";
    InjectionOfOtherModule: Invalid => "A Secret of the hub from which the module takes data belongs to another module; correct its label or the module.";

    // Components and their reconcilers.
    ComponentCrdMissing: Blocked => "The component's kind isn't installed on the hub; install its operator's CRD or put it into the ModuleTemplate.";
    ComponentGroupNotAllowed: Blocked => "Components of this API group aren't allowed here; allow the group with kyma-operator's --component-groups.";
    ContractViolated: Blocked => "The component's CRD lacks fields of the component contract; the message names them.";
    RuleViolated: Blocked => "The entry of the module violates a rule of a ModuleConfig; change it as the message says. The installed version stays.";
    ModuleConfigInvalid: Invalid => "A ModuleConfig is invalid, so the modules that it selects are not changed; correct it as the message says.";
    ModuleConfigMissing: Blocked => "A ModuleConfig no longer exists and its deletion is not proven, so it stays in force; create it again under its name, then delete it if it is not needed.";
    KindChanged: Invalid => "The new version of the module has another component kind; remove the module and add it again.";
    NoReconciler: Blocked => "No operator reconciles the component; check that its operator runs and watches this namespace.";
    CrdConflict: Blocked => "A CRD of this name exists and has another owner, or is newer; it is not changed.";
    ComponentFailed: Blocked => "The component reports an error; check its Ready condition.";

    // Source of the module's content.
    SourceNotFound: Transient => "The registry has no such artefact; check name and version, or publish it.";
    SourceUnauthorized: Transient => "The registry refuses access; check the pull secret.";
    SourceUnreachable: Transient => "The registry can't be reached or answers with errors; check its address and the network.";
    SourceHostRefused: Transient => "The source, or a redirect from it, leads to an address that isn't allowed; the message says why and what allows it.";
    DigestMismatch: Transient => "The pulled content doesn't have the expected digest and isn't used; find out who changed it.";
    SourceInvalid: Transient => "The source's answer is not the artefact that the component names, or its address is invalid; correct the artefact or the address.";
    SignatureMissing: Blocked => "The artefact must be signed but is not; sign it in its registry or repository. The installed version stays.";
    SignatureInvalid: Invalid => "The artefact is signed, but not by a signer that the component trusts; sign it again, or correct source.verify. The installed version stays.";
    VerificationInvalid: Invalid => "Signatures can't be verified: the keys are invalid or missing, or content of this kind has no signatures; correct source.verify.";
    SourceTooLarge: Transient => "The artefact is larger than allowed; split the module.";

    // Rendering.
    RenderFailed: Invalid => "The chart doesn't render; the message has the template's own error.";
    ValuesInvalid: Invalid => "The values are too large, can't be merged, or break the chart's schema; correct the keys that the message names.";
    PatchInvalid: Invalid => "A patch is invalid, or can't be applied to an object that it selects; correct the one that the message names. The installed version stays.";
    ValuesMissing: Blocked => "A ConfigMap or Secret that valuesFrom names, or its key, is missing; create it, or remove the entry. The installed version stays.";
    RenderTimeout: Transient => "Rendering took longer than allowed; simplify the chart.";
    RenderTooLarge: Invalid => "Rendering produced more than allowed; split the module.";
    RendererUnavailable: Transient => "The helm program can't be started; check the operator's image and its resources.";
    InventoryTooLarge: Invalid => "The component has more objects than its status can hold; split it into several components.";
    ManifestInvalid: Invalid => "The manifest isn't a list of Kubernetes objects; correct the document that the message names.";

    // Applying objects to the target.
    ApplyRefused: Blocked => "The target refuses a request or an object; correct the field that the message names. The operator retries after 5 s to 10 min.";
    ReleaseRecordInvalid: Blocked => "Helm's record of the release to adopt can't be read, so nothing is changed; repair or delete the Secret that the message names.";
    ApplyConflict: Transient => "Another field manager changed the object at the same time; the apply is retried.";
    OwnedByOther: Blocked => "The object belongs to another owner and is not changed; remove it there, or set adopt.";
    DeletionRefused: Blocked => "An object must be deleted, but a rule that protects data forbids it; the message names object and rule. Delete it by hand if it is not needed.";
    Protected: Invalid => "The module contains an object that no module may touch; remove it from the module.";
    ImmutableField: Blocked => "An immutable field would change; keep its value, delete the object by hand, or allow its recreation with spec.recreate.";
    CrdVersionInUse: Blocked => "Objects are stored in an API version that the new CRD no longer serves; rewrite them and remove the version from status.storedVersions.";
    QuotaExceeded: Transient => "A quota of the namespace is used up; raise it, or delete objects that it counts.";
    NamespaceTerminating: Transient => "The namespace is being deleted; the operator continues once it is deleted.";
    WebhookFailed: Transient => "An admission webhook on the target didn't answer; check the workload that serves it.";
    WebhookDenied: Blocked => "A policy or admission webhook on the target denies an object; change the policy or the module.";
    DiscoveryFailed: Transient => "Part of the target's API can't be listed; check the APIServices that the message names.";
    DependencyMissing: Blocked => "Kinds or namespaces that some objects need are missing; these objects are applied once they exist, the others are installed.";
    DependencyNotReady: Blocked => "A module or component that this one depends on is missing or not ready; the installation or change continues once it is ready.";
    DependencyLost: Blocked => "A module or component that this one depends on is no longer ready; the installed objects are still reconciled, but a change of the spec waits.";
    DependencyCycle: Invalid => "Components depend on each other in a cycle, so none can be installed first; remove one of the dependencies that the message names.";
    PruneGuard: Blocked => "The new version would remove suspiciously many objects, so nothing is removed; check the module, then confirm.";
    DriftFlapping: Blocked => "Another field manager repeatedly reverts changes of an object; find it, or set drift.mode to Warn.";
    DefaultResourceFailed: Transient => "The module's default CR can't be created yet; the message has the target's own answer.";
    HookFailed: Transient => "A hook of the chart failed or took too long; check the object that the message names. The hook is retried after a pause.";
    DeletionBlocked: Blocked => "Objects of the module's kinds, or components that depend on it, still exist; delete the objects that the message names to continue the removal.";
    DeletionTimeout: Blocked => "The removal takes longer than allowed; check the finalizers of the objects that the message names.";
    TestFailed: Invalid => "A test of the chart failed; check the object that the message names, and request the tests again. The installed release stays.";
    RolledBack: Blocked => "The desired release failed and the last Ready one is installed again; correct what the message names. The desired release is also retried after a long pause.";
    RollbackUnavailable: Blocked => "No release is stored for a rollback; the message gives the reason. The installed release stays.";
    Unhealthy: Blocked => "An object on the target reports a failure; the message names it.";
    HealthTimeout: Blocked => "The objects didn't become ready in time; the message names the objects that are not ready.";
}
