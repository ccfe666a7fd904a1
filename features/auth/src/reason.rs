//! The words for why a request is turned away.

/// Declares the reasons and their words.
macro_rules! reasons {
    ($($reason:ident $word:literal)+) => {
        /// A reason. The nine words are the whole vocabulary of logs and metrics.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Reason {
            $($reason,)+
        }

        impl Reason {
            pub(crate) const WORDS: [&str; 9] = [$($word),+];

            pub(crate) const fn word(self) -> &'static str {
                match self {
                    $(Self::$reason => $word,)+
                }
            }
        }
    };
}

reasons! {
    Missing "missing"
    Malformed "malformed"
    UnsupportedAlg "unsupported_alg"
    Untrusted "untrusted"
    Expired "expired"
    NotYetValid "not_yet_valid"
    Audience "audience"
    Issuer "issuer"
    Scope "scope"
}
