//! The client for the cluster.

use std::time::Duration;

use anyhow::Context as _;
use futures::StreamExt;
use http::Response;
use http_body_util::{BodyExt, BodyStream, StreamBody, combinators::UnsyncBoxBody};
use kube::{Client, Config, client::ClientBuilder};
use tower::{BoxError, util::MapResponseLayer};

use fedq_values::nested::Scan;

/// `answer_within` is how long the first byte of an answer may take.
pub async fn client(answer_within: Duration) -> anyhow::Result<Client> {
    let mut config =
        Config::infer().await.context("cannot find the cluster: neither KUBECONFIG nor a service account")?;
    // Errors are tried again by whoever knows what for.
    config.default_retry = false;
    let builder = ClientBuilder::try_from(config).context("cannot make a client for the cluster")?;
    let timeout = tower::timeout::TimeoutLayer::new(answer_within);
    Ok(builder.with_layer(&MapResponseLayer::new(guarded)).with_layer(&timeout).build())
}

/// What is wrapped is read as it is, whoever wrote it: an answer that would be read as JSON within JSON ends as an error.
fn guarded<B>(response: Response<B>) -> Response<UnsyncBoxBody<hyper::body::Bytes, BoxError>>
where
    B: http_body::Body<Data = hyper::body::Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    response.map(|body| {
        let mut scan = Scan::default();
        let pieces = BodyStream::new(body.map_err(Into::into)).map(move |frame| {
            let frame = frame?;
            if frame.data_ref().is_some_and(|data| scan.finds(data)) {
                return Err("the answer holds JSON as text that is to be read at once".into());
            }
            Ok(frame)
        });
        StreamBody::new(pieces).boxed_unsync()
    })
}
