//! Macro that makes the enums of events from the table of all events.

/// Each row names an event, its payload and its facets. Rows are grouped by the kind of run to which the event happens.
macro_rules! events {
    ($($(#[$about:meta])* $kind:ident($event:ident) {
        $($(#[$doc:meta])* $name:ident($payload:ty) => $facets:expr,)*
    })*) => {
        /// A fact about a run. Its serialised form is the `event_type` and `payload` of the log, the transcript and the
        /// event stream alike, except for the names of [`Event::name_in`]; names are unique over all kinds.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(untagged)]
        pub enum Event {
            $($(#[$about])* $kind($event),)*
        }

        $(
            $(#[$about])*
            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
            #[serde(tag = "event_type", content = "payload", rename_all = "snake_case")]
            #[strum(serialize_all = "snake_case")]
            pub enum $event {
                $($(#[$doc])* $name($payload),)*
            }

            impl From<$event> for Event {
                fn from(event: $event) -> Self {
                    Self::$kind(event)
                }
            }

            $(impl From<$payload> for Event {
                fn from(payload: $payload) -> Self {
                    Self::$kind($event::$name(payload))
                }
            })*
        )*

        impl Event {
            /// The facets of each event, in the order of [`Event::table_names`].
            const FACETS: &[Facets] = &[$($($facets,)*)*];

            /// Returns every name that [`Event::name`] gives.
            fn table_names() -> impl Iterator<Item = &'static str> {
                [$($event::VARIANTS),*].into_iter().flatten().copied()
            }

            /// The name of this event in the table.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$kind(event) => event.into(),)*
                }
            }

            /// Returns the facets of the event.
            pub const fn facets(&self) -> Facets {
                match self {
                    $($(Self::$kind($event::$name(_)) => $facets,)*)*
                }
            }

            fn of(name: &str, payload: impl Payload) -> Result<Self, Unreadable> {
                let read = $(if $event::VARIANTS.contains(&name) {
                    payload.of(name).map(Self::$kind)
                } else)* {
                    return Err(Unreadable::Name { name: name.to_owned() });
                };
                read.map_err(|source| Unreadable::Payload { name: name.to_owned(), source })
            }
        }
    };
}
