//! The memory of a lane's activations and gradients, and how ops get parts of it.

use super::plan::{Kept, Tenant};
use crate::Result;
use tensor::{Backend, Device, Storage, View, ViewMut};

/// What holds all activations and their gradients, at places that the plan decides.
pub(super) struct Pools {
    pools: Vec<Storage>,
    /// For tensors that have a shape alone.
    nothing: Storage,
}

impl Pools {
    /// With so many elements each.
    pub(super) fn new(device: &Device, lens: &[usize]) -> Result<Self> {
        let pools = lens.iter().map(|&len| device.alloc_activations(len)).collect::<tensor::Result<_>>()?;
        Ok(Pools { pools, nothing: device.alloc_activations(0)? })
    }

    /// Elements of all pools.
    pub(super) fn len(&self) -> usize {
        self.pools.iter().map(Storage::len).sum()
    }

    pub(super) fn of(&self, pool: usize) -> &Storage {
        &self.pools[pool]
    }

    pub(super) fn of_mut(&mut self, pool: usize) -> &mut Storage {
        &mut self.pools[pool]
    }

    /// Several pools to work with at once.
    pub(super) fn disjoint<const N: usize>(&mut self, which: [usize; N]) -> [&mut Storage; N] {
        self.pools.get_disjoint_mut(which).expect("the plan gives the tensors of one op pools of their own")
    }

    /// The same, of which all but the first one may lie nowhere; and for those, nothing.
    pub(super) fn lend<const N: usize>(
        &mut self,
        first: usize,
        others: [Option<usize>; N],
    ) -> (&mut Storage, [Option<&mut Storage>; N], &Storage) {
        let (mut found, mut lent) = (None, [const { None }; N]);
        for (pool, storage) in self.pools.iter_mut().enumerate() {
            if pool == first {
                found = Some(storage);
            } else if let Some(k) = others.iter().position(|&other| other == Some(pool)) {
                lent[k] = Some(storage);
            }
        }
        (found.expect("the plan gives every gradient a pool"), lent, &self.nothing)
    }
}

impl Tenant {
    pub(super) fn view<'a>(&self, pool: &'a Storage, n: usize) -> View<'a, Storage> {
        View::new(pool, self.layout.samples(0..n))
    }

    pub(super) fn view_mut<'a>(&self, pool: &'a mut Storage, n: usize) -> ViewMut<'a, Storage> {
        ViewMut::new(pool, self.layout.samples(0..n))
    }
}

impl Kept {
    pub(super) fn view<'a>(
        &self,
        pool: Option<&'a mut Storage>,
        nothing: &'a Storage,
        n: usize,
    ) -> View<'a, Storage> {
        View::new(pool.map_or(nothing, |pool| &*pool), self.layout.samples(0..n))
    }
}
