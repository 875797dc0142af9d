//! What is read for long goes on only as long as whoever reads it may: it ends soon after their token or their right is
//! withdrawn. As long as it goes on, it has its place among the streams of its reader.

use std::time::Duration;

use axum::{
    body::Body,
    http::{HeaderMap, StatusCode},
};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use tokio::time::sleep;

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

    /// With one of the places that `user` has for ways into pods.
    pub async fn way(state: &State, user: &str, review: Review) -> Result<Self, Failure> {
        let place = state.callers.way(user).await?;
        Ok(Self { _place: Some(place), ..Self::new(review) })
    }

    pub fn until(self, let_go: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { let_go: let_go.boxed(), ..self }
    }

    /// When it must end.
    pub async fn over(mut self) {
        loop {
            tokio::select! {
                biased;
                () = &mut self.let_go => return,
                () = sleep(EVERY) => {}
            }
            let review = (self.review)();
            if review.await.is_err_and(|failure| is_no(&failure)) {
                return;
            }
        }
    }

    pub fn body(self, body: Body) -> Body {
        let watch = (body.into_data_stream(), self.over().boxed());
        Body::from_stream(stream::unfold(watch, |(mut body, mut over)| async {
            let piece = tokio::select! {
                biased;
                () = &mut over => None,
                piece = body.next() => piece,
            };
            piece.map(|piece| (piece, (body, over)))
        }))
    }
}

/// Where neither yes nor no is answered, what was allowed goes on: it ends by itself within minutes.
fn is_no(Failure(problem): &Failure) -> bool {
    let no = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::NOT_FOUND];
    no.iter().any(|status| status.as_u16() == problem.status)
}
