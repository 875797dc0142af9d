// Argo CD's Application controller, as upstream has it, fed from a folder instead of Git.
//
//	KUBECONFIG=FILE argocd FOLDER PORT
//
// Everything that decides and writes is upstream's: the controller, its diff and sync, and the rendering of manifests. Ours
// is what an installation has around them: files stand in for the repository (a source's path is a folder under FOLDER, and
// the hash of all files is the revision), memory stands in for Redis, and self-heal comes after a second without a backoff,
// so that a test sees in seconds what a person sees in hours.
package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	commitclient "github.com/argoproj/argo-cd/v3/commitserver/apiclient"
	"github.com/argoproj/argo-cd/v3/common"
	"github.com/argoproj/argo-cd/v3/controller"
	"github.com/argoproj/argo-cd/v3/controller/sharding"
	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	appclientset "github.com/argoproj/argo-cd/v3/pkg/client/clientset/versioned"
	"github.com/argoproj/argo-cd/v3/reposerver/apiclient"
	"github.com/argoproj/argo-cd/v3/reposerver/repository"
	"github.com/argoproj/argo-cd/v3/util/argo"
	"github.com/argoproj/argo-cd/v3/util/argo/normalizers"
	cacheutil "github.com/argoproj/argo-cd/v3/util/cache"
	"github.com/argoproj/argo-cd/v3/util/cache/appstate"
	"github.com/argoproj/argo-cd/v3/util/git"
	utilio "github.com/argoproj/argo-cd/v3/util/io"
	kubeutil "github.com/argoproj/argo-cd/v3/util/kube"
	"github.com/argoproj/argo-cd/v3/util/settings"
)

const (
	namespace = "argocd"
	resync    = 2 * time.Second
	selfHeal  = time.Second
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: argocd FOLDER PORT")
	}
	port, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	// The cluster that an Application calls `https://kubernetes.default.svc` is that of KUBECONFIG.
	if err := os.Setenv(v1alpha1.EnvVarFakeInClusterConfig, "true"); err != nil {
		return err
	}
	if err := v1alpha1.SetK8SConfigDefaults(config); err != nil {
		return err
	}
	config.UserAgent = common.DefaultApplicationControllerName
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	apps, err := appclientset.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	var running *controller.ApplicationController
	manager := settings.NewSettingsManager(ctx, kube, namespace, settings.WithRepoOrClusterChangedHandler(func() {
		running.InvalidateProjectsCache()
	}))
	shards, err := sharding.GetClusterSharding(kube, manager, common.DefaultShardingAlgorithm, false)
	if err != nil {
		return err
	}
	memory := appstate.NewCache(cacheutil.NewCache(cacheutil.NewInMemoryCache(time.Hour)), time.Hour)
	running, err = controller.NewApplicationController(
		namespace, manager, kube, apps, folder(args[0]), commitclient.NewCommitServerClientset(""), memory, kubeutil.NewKubectl(),
		resync, 0, 0, selfHeal, nil, 0, 0, 0, port, 0, nil, nil, nil, 0, false, shards, nil, nil, false, false,
		normalizers.IgnoreNormalizerOpts{JQExecutionTimeout: time.Second}, argo.DefaultEnableEventList(), false,
	)
	if err != nil {
		return err
	}
	// Upstream listens on every address.
	running.GetMetricsServer().Addr = fmt.Sprintf("127.0.0.1:%d", port)
	go running.Run(ctx, 2, 2)
	<-ctx.Done()
	return nil
}

// folder answers as Argo CD's repository server would, for the few questions that the controller asks of it. All others are
// of the interface inside server, which is nil: they end the program.
type folder string

func (root folder) NewRepoServerClient() (utilio.Closer, apiclient.RepoServerServiceClient, error) {
	return utilio.NopCloser, server{root: string(root)}, nil
}

type server struct {
	apiclient.RepoServerServiceClient
	root string
}

func (s server) GenerateManifest(
	ctx context.Context, request *apiclient.ManifestRequest, _ ...grpc.CallOption,
) (*apiclient.ManifestResponse, error) {
	revision, err := revision(s.root)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(s.root, request.ApplicationSource.Path)
	answer, err := repository.GenerateManifests(ctx, path, s.root, revision, request, true, git.NoopCredsStore{},
		resource.MustParse("10Mi"), utilio.NewRandomizedTempPaths(os.TempDir()))
	if answer != nil {
		answer.Revision = revision
	}
	return answer, err
}

func (s server) ResolveRevision(
	context.Context, *apiclient.ResolveRevisionRequest, ...grpc.CallOption,
) (*apiclient.ResolveRevisionResponse, error) {
	revision, err := revision(s.root)
	return &apiclient.ResolveRevisionResponse{Revision: revision, AmbiguousRevision: revision}, err
}

// revision has the form of a commit's, which the controller looks for.
func revision(root string) (string, error) {
	hash := sha256.New()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		fmt.Fprintf(hash, "%s\x00%s\x00", entry.Name(), text)
		return err
	})
	return fmt.Sprintf("%x", hash.Sum(nil))[:40], err
}
