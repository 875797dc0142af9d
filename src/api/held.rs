//! What is read for long goes on only as long as whoever reads it may: it ends soon after their token or their right is
//! withdrawn. As long as it goes on, it has its place among the streams of its reader.

use std::time::Duration;

use axum::{
    body::{Body, BodyDataStream, Bytes},
    http::{HeaderMap, StatusCode},
};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use tokio::time::{Instant, sleep_until};

use super::{Failure, State, extract::reader};
use fedq_k8s::proxy::Place;

/// How often it is asked. Answers are remembered for ten seconds, so a hub is asked no more often than that for all of
/// somebody's streams, and a withdrawal is felt within fifteen.
const EVERY: Duration = Duration::from_secs(5);

/// Asks what let the reader in once more.
pub type Review = Box<dyn Fn() -> BoxFuture<'static, Result<(), Failure>> + Send>;

pub struct Held {
    review: Review,
    /// What ends it at once.
    let_go: BoxFuture<'static, ()>,
    _place: Option<Place>,
}

impl Held {
    pub fn new(review: Review) -> Self {
        Self { review, let_go: std::future::pending().boxed(), _place: None }
    }

    /// With one of the places that `user` has for streams.
    pub async fn stream(state: &State, user: &str, review: Review) -> Result<Self, Failure> {
        let place = state.callers.stream(user).await?;
        Ok(Self { _place: Some(place), ..Self::new(review) })
    }

    /// For who may read what fedq knows.
    pub async fn reader(state: &State, headers: &HeaderMap) -> Result<Self, Failure> {
        let caller = reader(state, headers).await?;
        let (again, headers) = (state.clone(), headers.clone());
        let review = move || {
            let (state, headers) = (again.clone(), headers.clone());
            async move { reader(&state, &headers).await.map(drop) }.boxed()
        };
        Self::stream(state, &caller.user, Box::new(review)).await
    }

    pub fn until(self, let_go: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { let_go: let_go.boxed(), ..self }
    }

    pub fn body(self, body: Body) -> Body {
        let watch = Watch { body: body.into_data_stream(), held: self, look: Instant::now() + EVERY };
        Body::from_stream(stream::unfold(watch, |mut watch| async {
            let piece = watch.next().await?;
            Some((piece, watch))
        }))
    }
}

struct Watch {
    body: BodyDataStream,
    held: Held,
    look: Instant,
}

impl Watch {
    async fn next(&mut self) -> Option<Result<Bytes, axum::Error>> {
        loop {
            tokio::select! {
                biased;
                () = &mut self.held.let_go => return None,
                () = sleep_until(self.look) => {
                    let review = (self.held.review)();
                    if review.await.is_err_and(|failure| is_no(&failure)) {
                        return None;
                    }
                    self.look = Instant::now() + EVERY;
                }
                piece = self.body.next() => return piece,
            }
        }
    }
}

/// Where neither yes nor no is answered, what was allowed goes on: it ends by itself within minutes.
fn is_no(Failure(problem): &Failure) -> bool {
    let no = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::NOT_FOUND];
    no.iter().any(|status| status.as_u16() == problem.status)
}
