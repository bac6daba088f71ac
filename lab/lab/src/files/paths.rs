//! Path lengths in kernel files.

/// Tables of path lengths: a number of instructions for each field of what the kernel takes. What stands behind a `;`
/// is in the table alone.
macro_rules! paths {
    ($($(#[$doc:meta])* $name:ident for $target:ident { $($field:ident),* $(,)? $(; $($more:ident),*)? })*) => { $(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        #[allow(missing_docs, reason = "the fields are those of the target")]
        pub struct $name { $(pub $field: Sourced<u32>,)* $($(pub $more: Sourced<u32>,)*)? }

        impl $name {
            pub(super) fn lengths(&self) -> $target {
                $target { $($field: CodePath::of(self.$field.value)),* }
            }
        }
    )* };
}

pub(super) use paths;
