// Command peer follows the nodes of many clusters with client-go's informers, as a controller in Go does, so
// that fedqd can be measured beside it. It takes a folder of kubeconfigs, says "synced" once it knows all
// nodes, and then answers each line of its input with the number of events it has seen.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// What client-go is told beyond its defaults.
var tuned = flag.Bool("tuned", false, "protobuf, no rate limit, and no managed fields, images or annotations kept")

func main() {
	flag.Parse()
	files, err := filepath.Glob(filepath.Join(flag.Arg(0), "*.kubeconfig"))
	if err != nil || len(files) == 0 {
		log.Fatalf("no kubeconfigs in %q: %v", flag.Arg(0), err)
	}
	var events atomic.Int64
	stop := make(chan struct{})
	var synced []cache.InformerSynced
	for _, file := range files {
		informer, err := follow(file, &events)
		if err != nil {
			log.Fatalf("%s: %v", file, err)
		}
		synced = append(synced, informer.HasSynced)
		go informer.Run(stop)
	}
	if !cache.WaitForCacheSync(stop, synced...) {
		log.Fatal("stopped before all nodes were known")
	}
	fmt.Println("synced")
	answer(&events)
}

func answer(events *atomic.Int64) {
	asked := bufio.NewScanner(os.Stdin)
	for asked.Scan() {
		fmt.Println(events.Load())
	}
	if err := asked.Err(); err != nil {
		log.Fatal(err)
	}
}

func follow(file string, events *atomic.Int64) (cache.SharedIndexInformer, error) {
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, err
	}
	if *tuned {
		config.ContentConfig = rest.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf"}
		config.QPS = -1
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	informer := informers.NewSharedInformerFactory(client, 0).Core().V1().Nodes().Informer()
	if *tuned {
		if err := informer.SetTransform(trim); err != nil {
			return nil, err
		}
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, _ any) { events.Add(1) },
		DeleteFunc: func(any) { events.Add(1) },
	})
	return informer, err
}

func trim(object any) (any, error) {
	if node, ok := object.(*corev1.Node); ok {
		node.ManagedFields = nil
		node.Annotations = nil
		node.Status.Images = nil
	}
	return object, nil
}
