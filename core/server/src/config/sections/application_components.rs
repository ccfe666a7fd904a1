use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::scalar::Int;
use crate::config::text::{Form, Unshown};
use crate::text_keys;

/// A group metadata field that clients register in the conversations they create; published and
/// not enforced. Leave a published definition as it is: a change reaches only conversations that
/// register the field later. Every key is required (CONF-078).
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct ApplicationComponent {
    /// Id of the field, 0xC000 to 0xFEFF; unique.
    pub component_id: Int<0xC000, 0xFEFF>,
    /// Name of the field, 1 to 100 bytes; unique, and not the name of a well-known field.
    #[schemars(example = &"EXAMPLE_COLOR")]
    pub name: ComponentName,
    /// Shape of its value.
    pub component_type: ComponentType,
    /// Who may set it where it is absent.
    pub insert_policy: Policy,
    /// Who may change it.
    pub update_policy: Policy,
    /// Who may remove it.
    pub delete_policy: Policy,
    /// Whether groups have it. They or direct messages must.
    pub in_groups: bool,
    /// Whether direct messages have it.
    pub in_dms: bool,
}

/// Names that clients know already.
pub const WELL_KNOWN_NAMES: [&str; 17] = [
    "COMPONENT_REGISTRY",
    "SUPER_ADMIN_LIST",
    "ADMIN_LIST",
    "GROUP_MEMBERSHIP",
    "GROUP_NAME",
    "GROUP_DESCRIPTION",
    "GROUP_IMAGE_URL",
    "MESSAGE_DISAPPEAR_FROM_NS",
    "MESSAGE_DISAPPEAR_IN_NS",
    "APP_DATA",
    "MIN_SUPPORTED_PROTOCOL_VERSION",
    "COMMIT_LOG_SIGNER",
    "CONVERSATION_TYPE",
    "CREATOR_INBOX_ID",
    "DM_MEMBERS",
    "ONESHOT_MESSAGE",
    "USER_DISPLAY_NAME",
];

/// Name of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentName(Unshown);

impl ComponentName {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Form for ComponentName {
    const EXPECTED: &'static str = "a name of 1 to 100 bytes";

    fn pattern() -> String {
        r"^[\s\S]{1,100}$".to_owned()
    }

    fn parse(text: &str) -> Option<Self> {
        (1..=100).contains(&text.len()).then(|| Self(text.into()))
    }
}

/// Shape of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ComponentType {
    /// Bytes.
    Bytes,
    /// UTF-8 text.
    String,
    /// Map from bytes to bytes.
    TlsMapBytesBytes,
    /// Map from inbox id to bytes.
    TlsMapInboxIdBytes,
    /// Set of bytes.
    TlsSetBytes,
    /// Set of inbox ids.
    TlsSetInboxId,
    /// Map from inbox id to text.
    TlsMapInboxIdString,
}

/// Who may do something to a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Policy {
    /// Every member.
    Allow,
    /// Nobody.
    Deny,
    /// Admins and super admins.
    AllowIfAdmin,
    /// Super admins.
    AllowIfSuperAdmin,
    /// The member whom the entry is about, or anyone where it is about no member.
    AllowIfSelfOrNonMember,
}

text_keys!(ComponentName);
