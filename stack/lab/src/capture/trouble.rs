//! What can go wrong in a conversation, as far as a capture shows it.

/// A kind of trouble, in the order in which a summary tells of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    FatalNak,
    OtherPsns,
    GivenUp,
    LostBefore,
    LostBehind,
    ReadGap,
    UcGap,
    Damaged,
    Rnr,
    Timeout,
    SequenceNak,
    Reordered,
    Doubled,
    Resent,
    Unanswered,
    NotCaptured,
    OneDirection,
    BeginsInside,
    Unreadable,
    Congestion,
}

impl Kind {
    /// What a summary says of several.
    pub(super) fn several(self) -> &'static str {
        match self {
            Kind::FatalNak => "NAKs that end the connection",
            Kind::OtherPsns => "times an end expects PSNs that the other does not send",
            Kind::GivenUp => "requests were given up",
            Kind::LostBefore => "times packets were lost before they came to where this was captured",
            Kind::LostBehind => "times packets were lost behind where this was captured",
            Kind::ReadGap => "times the answer to a READ or an atomic is missing",
            Kind::UcGap => "times UC packets are missing, and nobody sends them again",
            Kind::Damaged => "packets have a wrong ICRC",
            Kind::Rnr => "RNR NAKs: the receiver had no RECV",
            Kind::Timeout => "ACK timeouts: silence, then the same again",
            Kind::SequenceNak => "sequence NAKs",
            Kind::Reordered => "packets came later than they were sent",
            Kind::Doubled => "packets came twice at once",
            Kind::Resent => "times packets were sent again for a reason that is not in the capture",
            Kind::Unanswered => "requests have no answer",
            Kind::NotCaptured => "times the capture itself missed packets",
            Kind::OneDirection => "directions are missing",
            Kind::BeginsInside => "directions begin inside a message",
            Kind::Unreadable => {
                "packets cannot be read: malformed, or cut short by the capture (tcpdump -s 0 keeps all)"
            }
            Kind::Congestion => "marks of congestion",
        }
    }
}

/// One occurrence.
#[derive(Debug, Clone)]
pub(super) struct Trouble {
    pub(super) kind: Kind,
    /// The packet where it shows, an index into the conversation.
    pub(super) index: usize,
    /// In a sentence or two.
    pub(super) text: String,
}
