//! What of a node's state shows in the shape of its body: each look has a template of its own.

/// How many GPUs of eight the device plugin offers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Gpus {
    #[default]
    All,
    /// One fell off the bus.
    OneLost,
    Half,
    None,
}

impl Gpus {
    pub(super) const ALL: [Self; 4] = [Self::All, Self::OneLost, Self::Half, Self::None];

    pub fn count(self) -> u8 {
        match self {
            Self::All => 8,
            Self::OneLost => 7,
            Self::Half => 4,
            Self::None => 0,
        }
    }
}

pub(super) const NOT_READY: u8 = 1;
pub(super) const CORDONED: u8 = 2;
pub(super) const TAINTED: u8 = 4;
/// Shows in no body: whoever sees a node deleted sees its last one.
pub(super) const GONE: u8 = 8;
/// Somebody wrote to it, and it is kept as an object since.
pub(super) const GIVEN_UP: u8 = 16;

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Look {
    pub gpus: Gpus,
    flags: u8,
}

impl Look {
    /// Looks that differ in their bodies.
    pub(super) const COUNT: usize = Gpus::ALL.len() * GONE as usize;

    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn with(self, flag: u8, on: bool) -> Self {
        let flags = if on { self.flags | flag } else { self.flags & !flag };
        Self { flags, ..self }
    }

    pub(super) fn with_gpus(self, gpus: Gpus) -> Self {
        Self { gpus, ..self }
    }

    /// Below [`Self::COUNT`].
    pub(super) fn place(self) -> usize {
        self.gpus as usize * usize::from(GONE) + usize::from(self.flags % GONE)
    }

    pub(super) fn all() -> impl Iterator<Item = Self> {
        Gpus::ALL.into_iter().flat_map(|gpus| (0..GONE).map(move |flags| Self { gpus, flags }))
    }
}
