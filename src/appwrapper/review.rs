//! AdmissionReview in, AdmissionReview out. Which objects a user may create is asked of the API server.

use std::collections::{BTreeMap, btree_map::Entry};

use json_patch::Patch;
use k8s_openapi::api::{
    authentication::v1::UserInfo,
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{
    Api, Client,
    api::PostParams,
    core::{
        DynamicObject, Status,
        admission::{AdmissionRequest, AdmissionResponse, AdmissionReview, Operation},
    },
};
use serde_json::{Value, json};

use fedq_wrapped::component::Component;

use crate::{
    api::AppWrapper,
    config::AppWrapperConfig,
    immutable,
    kinds::{KindError, Kinds},
    names::{GROUP, QUEUE_LABEL, USER_ID_LABEL, USER_LABEL},
    validate::{self, FieldError, label_value, template_field},
};

pub struct Judge {
    pub client: Client,
    pub kinds: Kinds,
    pub config: AppWrapperConfig,
}

type Request = AdmissionRequest<DynamicObject>;

impl Judge {
    /// Labels say whose it is, whatever the user wrote there.
    pub async fn default(&self, review: AdmissionReview<DynamicObject>) -> AdmissionReview<DynamicObject> {
        let request: Request = match review.try_into() {
            Ok(request) => request,
            Err(error) => return AdmissionResponse::invalid(error).into_review(),
        };
        let response = AdmissionResponse::from(&request);
        let Some(object) = request.object.as_ref().filter(|_| request.operation == Operation::Create) else {
            return response.into_review();
        };
        let names_user = match self.may_name_user(object, &request.user_info).await {
            Ok(may) => may,
            Err(error) => {
                let error = FieldError::internal(format!("metadata.labels[{USER_LABEL}]"), error.to_string());
                return response.deny(error).into_review();
            }
        };
        let patch = defaults(object, &request.user_info, (&self.config.default_queue_name, names_user));
        match response.with_patch(patch) {
            Ok(response) => response.into_review(),
            Err(error) => AdmissionResponse::invalid(error).into_review(),
        }
    }

    pub async fn validate(&self, review: AdmissionReview<DynamicObject>) -> AdmissionReview<DynamicObject> {
        let request: Request = match review.try_into() {
            Ok(request) => request,
            Err(error) => return AdmissionResponse::invalid(error).into_review(),
        };
        let mut response = AdmissionResponse::from(&request);
        let errors = match self.errors(&request).await {
            Ok(errors) => errors,
            Err(error) => return response.deny(format!("not an AppWrapper: {error}")).into_review(),
        };
        if !errors.is_empty() {
            response.allowed = false;
            response.result = Status::failure(&validate::sentence(&errors), "Forbidden").with_code(403);
        }
        response.into_review()
    }

    async fn errors(&self, request: &Request) -> Result<Vec<FieldError>, serde_json::Error> {
        let Some(new) = request.object.as_ref().map(read).transpose()? else { return Ok(Vec::new()) };
        let namespace = request.namespace.as_deref().unwrap_or_default();
        match (&request.operation, request.old_object.as_ref()) {
            (Operation::Create, _) => {
                let name = new.metadata.name.as_deref().unwrap_or_default();
                let components = match new.spec.read() {
                    Ok(components) => components,
                    Err(error) => return Ok(vec![error]),
                };
                let errors = validate::create(&components, namespace, name);
                if !errors.is_empty() {
                    // It is refused already; nobody need be asked.
                    return Ok(errors);
                }
                Ok(self.unauthorized(&components, namespace, &request.user_info).await)
            }
            (Operation::Update, Some(old)) => Ok(immutable::update(&read(old)?, &new)),
            _ => Ok(Vec::new()),
        }
    }

    /// Whether the labels stay that name somebody else than who asks: of whoever makes AppWrappers for others. That is asked of
    /// the whole cluster, so that it takes a ClusterRoleBinding: who may do everything in a namespace of theirs may not.
    async fn may_name_user(&self, object: &DynamicObject, user: &UserInfo) -> Result<bool, kube::Error> {
        let labels = object.metadata.labels.as_ref();
        let written = labels.and_then(|labels| labels.get(USER_LABEL));
        let own = label_value(user.username.as_deref().unwrap_or_default());
        if written.is_none_or(|written| *written == own) {
            return Ok(false);
        }
        let attributes = ResourceAttributes {
            group: Some(GROUP.to_owned()),
            resource: Some("appwrappers".to_owned()),
            subresource: Some("user".to_owned()),
            verb: Some("create".to_owned()),
            ..ResourceAttributes::default()
        };
        is_allowed(&self.client, of_user(user, attributes)).await
    }

    /// A user gets nothing by way of an AppWrapper that they could not have by themselves.
    async fn unauthorized(
        &self,
        components: &[Component],
        namespace: &str,
        user: &UserInfo,
    ) -> Vec<FieldError> {
        let (mut errors, mut answers) = (Vec::new(), BTreeMap::new());
        for (index, component) in components.iter().enumerate() {
            let text = |key: &str| component.template.get(key).and_then(Value::as_str).unwrap_or_default();
            let of = (text("apiVersion"), text("kind"));
            // Each kind is asked about once.
            let answer = match answers.entry(of) {
                Entry::Occupied(answer) => answer.into_mut(),
                Entry::Vacant(none) => none.insert(self.unauthorized_kind(of.0, of.1, namespace, user).await),
            };
            errors.extend(
                answer.as_ref().map(|answer| FieldError { field: template_field(index), ..answer.clone() }),
            );
        }
        errors
    }

    /// What is wrong with a component of this kind, if anything is; of no field yet.
    async fn unauthorized_kind(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        user: &UserInfo,
    ) -> Option<FieldError> {
        let field = String::new();
        let resource = match self.kinds.find(api_version, kind).await {
            Ok(found) if !found.namespaced => {
                let detail = "AppWrappers cannot create objects that have no namespace";
                return Some(FieldError::forbidden(field, detail));
            }
            Ok(found) => found.resource_name().to_owned(),
            // Only who may create everything of this group may create what nobody knows.
            Err(KindError::NoMatch { .. } | KindError::Ask { .. })
                if !self.config.user_rbac_admission_check =>
            {
                return None;
            }
            Err(_) => "*".to_owned(),
        };
        if !self.config.user_rbac_admission_check {
            return None;
        }
        match self.may_create(user, namespace, api_version, &resource).await {
            Ok(true) => None,
            Ok(false) => {
                let name = user.username.as_deref().unwrap_or_default();
                let detail = format!("User {name} is not authorized to create {resource} in {namespace}");
                Some(FieldError::forbidden(field, detail))
            }
            Err(error) => Some(FieldError::internal(field, error.to_string())),
        }
    }

    async fn may_create(
        &self,
        user: &UserInfo,
        namespace: &str,
        api_version: &str,
        resource: &str,
    ) -> Result<bool, kube::Error> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let attributes = ResourceAttributes {
            group: Some(group.to_owned()),
            version: Some(version.to_owned()),
            resource: Some(resource.to_owned()),
            namespace: Some(namespace.to_owned()),
            verb: Some("create".to_owned()),
            ..ResourceAttributes::default()
        };
        is_allowed(&self.client, of_user(user, attributes)).await
    }
}

fn of_user(user: &UserInfo, attributes: ResourceAttributes) -> SubjectAccessReviewSpec {
    let UserInfo { username, uid, groups, extra } = user.clone();
    SubjectAccessReviewSpec {
        user: username,
        uid,
        groups,
        extra,
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    }
}

pub async fn is_allowed(client: &Client, spec: SubjectAccessReviewSpec) -> Result<bool, kube::Error> {
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let api = Api::<SubjectAccessReview>::all(client.clone());
    let status = api.create(&PostParams::default(), &review).await?.status;
    Ok(status.is_some_and(|status| status.allowed && status.denied != Some(true)))
}

fn read(object: &DynamicObject) -> Result<AppWrapper, serde_json::Error> {
    serde_json::from_value(serde_json::to_value(object)?)
}

/// `names_user`: the labels name somebody else, and may.
pub(crate) fn defaults(object: &DynamicObject, user: &UserInfo, (queue, names_user): (&str, bool)) -> Patch {
    let mut labels = object.metadata.labels.clone().unwrap_or_default();
    if !queue.is_empty() {
        labels.entry(QUEUE_LABEL.to_owned()).or_insert_with(|| queue.to_owned());
    }
    for (label, value) in [(USER_LABEL, &user.username), (USER_ID_LABEL, &user.uid)] {
        if names_user {
            // Never the id of one beside the name of another.
            labels.entry(label.to_owned()).or_default();
        } else {
            labels.insert(label.to_owned(), label_value(value.as_deref().unwrap_or_default()));
        }
    }
    let before = json!({"metadata": {"labels": object.metadata.labels}});
    let before = if object.metadata.labels.is_some() { before } else { json!({"metadata": {}}) };
    json_patch::diff(&before, &json!({"metadata": {"labels": labels}}))
}
