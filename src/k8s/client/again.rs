//! Asks again where the server said that it has not looked at a request.
//!
//! A server that is updated, or spreads its clients anew, sends GOAWAY: what was open before it is answered, what
//! crossed it on the way is not. hyper asks again only where it has not sent anything yet.

use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response};
use kube::client::Body;
use tower::Service;

/// More connections in a row that go away at once mean something else.
const TIMES: usize = 3;

#[derive(Clone)]
pub(super) struct Again<S>(pub S);

type Answer<B, E> = Pin<Box<dyn Future<Output = Result<Response<B>, E>> + Send>>;

impl<S, B> Service<Request<Body>> for Again<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Error + Send + 'static,
    S::Future: Send + 'static,
    B: Send,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Answer<B, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut spare = copy(&request);
        let mut inner = self.0.clone();
        let first = self.0.call(request);
        Box::pin(async move {
            let mut answer = first.await;
            for _ in 0..TIMES {
                let Some(request) = spare.take_if(|_| matches!(&answer, Err(error) if was_not_seen(error)))
                else {
                    break;
                };
                spare = copy(&request);
                std::future::poll_fn(|context| inner.poll_ready(context)).await?;
                answer = inner.call(request).await;
            }
            answer
        })
    }
}

/// None of a body that is a stream, which is sent once.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    copy.extensions_mut().clone_from(request.extensions());
    Some(copy)
}

/// Whether the server said so: by the last stream of its GOAWAY, or by refusing the stream itself.
fn was_not_seen(error: &(dyn Error + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
    let mut told = causes.filter_map(|cause| cause.downcast_ref::<h2::Error>());
    told.any(|error| {
        let reason = error.reason();
        let left = error.is_go_away() && reason == Some(h2::Reason::NO_ERROR);
        let refused = error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM);
        error.is_remote() && (left || refused)
    })
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        io,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use rcgen::{CertificateParams, KeyPair};
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };
    use tokio_rustls::{TlsAcceptor, server::TlsStream};

    use super::*;
    use crate::{
        client::{ApiError, ClientLimits, call},
        testing::{authority, client_of, kubeconfig_of},
    };

    const HEADERS: u8 = 1;
    const SETTINGS: u8 = 4;
    const GO_AWAY: u8 = 7;

    /// Of the whole connection.
    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap();
        let head = [&length.to_be_bytes()[1..], &[kind, 0, 0, 0, 0, 0]].concat();
        [&head[..], payload].concat()
    }

    /// Until the client has sent a request.
    async fn request(socket: &mut TlsStream<TcpStream>) -> io::Result<()> {
        const PREFACE: usize = 24;
        socket.read_exact(&mut [0; PREFACE]).await?;
        socket.write_all(&frame(SETTINGS, &[])).await?;
        loop {
            let mut head = [0; 9];
            socket.read_exact(&mut head).await?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            socket.read_exact(&mut vec![0; usize::try_from(length).unwrap()]).await?;
            if head[3] == HEADERS {
                return Ok(());
            }
        }
    }

    /// A server that turns the first connections away, each once it has a request, and serves all others.
    async fn turning_away(first: usize) -> (String, Arc<AtomicUsize>) {
        let authority = authority();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let tls = rustls::ServerConfig::builder().with_no_client_auth();
        let mut tls = tls.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("https://{}", listener.local_addr().unwrap());
        let seen = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let number = counted.fetch_add(1, Ordering::Relaxed);
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let mut socket = acceptor.accept(socket).await.unwrap();
                    if number < first {
                        request(&mut socket).await.unwrap();
                        // The last stream that was looked at, and the reason: none at all, and no error.
                        socket.write_all(&frame(GO_AWAY, &[0; 8])).await.unwrap();
                        // What comes then is not looked at.
                        while socket.read(&mut [0; 1024]).await.is_ok_and(|bytes| 0 < bytes) {}
                    } else {
                        serve(socket).await;
                    }
                });
            }
        });
        (kubeconfig_of(&server, &authority.pem()), seen)
    }

    async fn serve(socket: TlsStream<TcpStream>) {
        let version = r#"{"major":"1","minor":"36","gitVersion":"v1.36.3","gitCommit":"","gitTreeState":"",
            "buildDate":"","goVersion":"","compiler":"","platform":""}"#;
        let service = hyper_util::service::TowerToHyperService::new(tower::service_fn(async move |_| {
            Ok::<_, Infallible>(Response::new(version.to_owned()))
        }));
        let socket = hyper_util::rt::TokioIo::new(socket);
        let builder = hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
        // The client ends it.
        let _ = builder.serve_connection(socket, service).await;
    }

    async fn ask(kubeconfig: &str) -> Result<String, ApiError> {
        let client = client_of(kubeconfig, &ClientLimits::default()).kube();
        let version = call(Duration::from_secs(20), client.apiserver_version()).await?;
        Ok(version.git_version)
    }

    #[tokio::test]
    async fn what_a_server_that_goes_away_has_not_looked_at_is_asked_again() {
        for times in [1, TIMES] {
            let (kubeconfig, seen) = turning_away(times).await;
            assert_eq!(ask(&kubeconfig).await.expect("an answer"), "v1.36.3");
            assert_eq!(seen.load(Ordering::Relaxed), times + 1);
        }
    }

    #[tokio::test]
    async fn who_always_goes_away_is_not_asked_for_ever() {
        let (kubeconfig, seen) = turning_away(usize::MAX).await;
        ask(&kubeconfig).await.expect_err("no answer");
        assert_eq!(seen.load(Ordering::Relaxed), TIMES + 1);
    }
}
