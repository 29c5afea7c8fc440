//! Classifying many pictures on several devices.

use crate::{Classifier, Error, Prediction};
use std::sync::mpsc::sync_channel;
use std::thread;

/// Classifies `batches` batches of pictures on all `replicas` of a network at once.
///
/// `read(batch)` has the pixels of a batch, as [`Classifier::classify`] takes them, and anything else to know about
/// it. It is called on the thread of a replica: of R replicas, number r takes the batches r, r + R, and so on.
/// `see` is called with the predictions in the order of the batches. Where it returns `false`, no
/// more are classified.
///
/// A batch is classified by one replica, so on devices of one kind their number changes no bit.
///
/// # Errors
/// The first error of `read`, `see` or [`Classifier::classify`], in the order of the batches. [`Error::Tensor`] if the
/// system has no thread for one of several replicas.
pub fn classify_batches<B: Send, E: From<Error> + Send>(
    replicas: &mut [Classifier],
    batches: usize,
    read: impl Fn(usize) -> Result<(B, Vec<u8>), E> + Sync,
    mut see: impl FnMut(B, Vec<Prediction>) -> Result<bool, E>,
) -> Result<(), E> {
    let count = replicas.len();
    let classify = |replica: &mut Classifier, batch| {
        let (about, pixels) = read(batch)?;
        Ok::<_, E>((about, replica.classify(&pixels)?))
    };
    if let [only] = replicas {
        for batch in 0..batches {
            let (about, predictions) = classify(only, batch)?;
            if !see(about, predictions)? {
                break;
            }
        }
        return Ok(());
    }
    let classify = &classify;
    thread::scope(|scope| {
        let mut results = Vec::with_capacity(count);
        for (first, replica) in replicas.iter_mut().enumerate() {
            // One batch waits while the next is classified.
            let (send, receive) = sync_channel(1);
            results.push(receive);
            let work = move || {
                for batch in (first..batches).step_by(count) {
                    let classified = classify(replica, batch);
                    let failed = classified.is_err();
                    // Nobody receives it after an error, or once enough was seen.
                    if send.send(classified).is_err() || failed {
                        return;
                    }
                }
            };
            thread::Builder::new().spawn_scoped(scope, work).map_err(|error| no_thread(first, &error))?;
        }
        for receive in results.iter().cycle().take(batches) {
            // Without a result the replica has panicked, and so will the scope.
            let Ok(classified) = receive.recv() else { break };
            let (about, predictions) = classified?;
            if !see(about, predictions)? {
                break;
            }
        }
        Ok(())
    })
}

fn no_thread(replica: usize, error: &std::io::Error) -> Error {
    let message = format!("can't start a thread for replica {replica}: {error}");
    towers_program::Error::Device { device: "the CPU".to_owned(), message }.into()
}
