// What a program does with the generated client: pages, an edit that meets a conflict, a task, its log, a followed list.
//
// FEDQ_SERVER and FEDQ_TOKEN say where fedqd is; FEDQ_CUT, where it is reached by connections that break.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"fedq.dev/clients/fedq"
)

const claimName = "tokyo-resource-claim"

func connected(server string) *fedq.ClientWithResponses {
	token := func(_ context.Context, request *http.Request) error {
		request.Header.Set("Authorization", "Bearer "+os.Getenv("FEDQ_TOKEN"))
		return nil
	}
	client, err := fedq.NewClientWithResponses(server, fedq.WithRequestEditorFn(token))
	if err != nil {
		log.Fatal(err)
	}
	return client
}

func clustersByPages(ctx context.Context, client *fedq.ClientWithResponses) ([]string, int, error) {
	var names []string
	limit := int64(1)
	params := &fedq.ListClustersParams{Limit: &limit}
	for pages := 1; ; pages++ {
		page, err := client.ListClustersWithResponse(ctx, params)
		if err != nil {
			return nil, 0, err
		}
		if page.JSON200 == nil {
			return nil, 0, fmt.Errorf("list clusters: %s: %s", page.Status(), page.Body)
		}
		for _, cluster := range page.JSON200.Items {
			names = append(names, cluster.Name)
		}
		if page.JSON200.Continue == nil {
			return names, pages, nil
		}
		params.Continue = page.JSON200.Continue
	}
}

func read(ctx context.Context, client *fedq.ClientWithResponses) (string, *fedq.ClaimDetail, error) {
	answer, err := client.GetClaimWithResponse(ctx, claimName, nil)
	if err != nil {
		return "", nil, err
	}
	if answer.JSON200 == nil {
		return "", nil, fmt.Errorf("read the claim: %s: %s", answer.Status(), answer.Body)
	}
	return answer.HTTPResponse.Header.Get("ETag"), answer.JSON200, nil
}

// edit takes a GPU from a queue, on what is there: whoever was faster is not overwritten.
func edit(ctx context.Context, client *fedq.ClientWithResponses) error {
	stale, _, err := read(ctx, client)
	if err != nil {
		return err
	}
	var wanted fedq.ClaimSpec
	for {
		etag, claim, err := read(ctx, client)
		if err != nil {
			return err
		}
		wanted = claim.Spec
		gpus := (*wanted.ResourceAssignments)[0].Resources
		there, err := strconv.Atoi(gpus["gpu"])
		if err != nil {
			return err
		}
		gpus["gpu"] = strconv.Itoa(there - 1)
		answer, err := client.EditClaimWithResponse(ctx, claimName, &fedq.EditClaimParams{IfMatch: etag}, wanted)
		if err != nil {
			return err
		}
		if answer.JSON200 != nil {
			break
		}
		if problem := answer.ApplicationproblemJSON412; problem == nil || problem.Code != fedq.CodeConflict {
			return fmt.Errorf("edit the claim: %s: %s", answer.Status(), answer.Body)
		}
	}
	refused, err := client.EditClaimWithResponse(ctx, claimName, &fedq.EditClaimParams{IfMatch: stale}, wanted)
	if err != nil {
		return err
	}
	if problem := refused.ApplicationproblemJSON412; problem == nil || problem.Code != fedq.CodeConflict {
		return fmt.Errorf("an edit of what was changed is not refused: %s: %s", refused.Status(), refused.Body)
	}
	return nil
}

// followed is the tasks there are, as a stream tells of them; it goes on where its connection breaks.
type followed struct {
	tasks       map[string]fedq.Task
	connections int
}

func (f *followed) until(ctx context.Context, client *fedq.ClientWithResponses, holds func(map[string]fedq.Task) bool) error {
	for ctx.Err() == nil {
		f.connections++
		reached, err := f.oneConnection(ctx, client, holds)
		if reached || err != nil {
			return err
		}
	}
	return fmt.Errorf("waited in vain, over %d connections: %w", f.connections, ctx.Err())
}

func (f *followed) oneConnection(ctx context.Context, client *fedq.ClientWithResponses, holds func(map[string]fedq.Task) bool) (bool, error) {
	watch := true
	response, err := client.ListTasks(ctx, &fedq.ListTasksParams{Watch: &watch})
	if err != nil {
		return false, nil // The connection broke before there was an answer.
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return false, fmt.Errorf("follow the tasks: %s", response.Status)
	}
	// A stream begins with all that is there: what it does not name by SYNCED went meanwhile.
	begun := map[string]fedq.Task{}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var event fedq.TaskWatchEvent
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return false, nil // The last line before the break.
		}
		change, err := event.AsTaskWatchChange()
		if err != nil {
			return false, err
		}
		switch change.Type {
		case "SYNCED":
			f.tasks, begun = begun, nil
		case fedq.TaskWatchChangeTypeDELETED:
			delete(f.tasks, change.Object.Id)
		default:
			if begun != nil {
				begun[change.Object.Id] = change.Object
			} else {
				f.tasks[change.Object.Id] = change.Object
			}
		}
		if begun == nil && holds(f.tasks) {
			return true, nil
		}
	}
	return false, nil
}

func logOf(ctx context.Context, client *fedq.ClientWithResponses, task string) ([]string, error) {
	response, err := client.TaskLogs(ctx, task, nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var written []string
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		var line fedq.LogLine
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Type == "LINE" {
			written = append(written, line.Line)
		}
	}
	return written, lines.Err()
}

func run(ctx context.Context) error {
	client := connected(os.Getenv("FEDQ_SERVER"))
	names, pages, err := clustersByPages(ctx, client)
	if err != nil {
		return err
	}
	if pages != 3 || !slices.Equal(names, []string{"frankfurt", "oregon", "tokyo"}) {
		return fmt.Errorf("%d pages of clusters: %v", pages, names)
	}
	if err := edit(ctx, client); err != nil {
		return err
	}
	// Where fedqd itself runs it: what MultiKueue dispatches leaves no log behind.
	name, cluster := "from-go", "oregon"
	task := fedq.SubmitTask{File: "resources: {accelerators: A100:1}\nrun: echo hello\n", Name: &name, Cluster: &cluster}
	submitted, err := client.SubmitTaskWithResponse(ctx, nil, task)
	if err != nil {
		return err
	}
	if submitted.JSON201 == nil {
		return fmt.Errorf("submit a task: %s: %s", submitted.Status(), submitted.Body)
	}
	id := submitted.JSON201.Id
	over := func(tasks map[string]fedq.Task) bool {
		return slices.Contains([]string{"succeeded", "failed", "stopped"}, tasks[id].Phase)
	}
	var tasks followed
	if err := tasks.until(ctx, connected(os.Getenv("FEDQ_CUT")), over); err != nil {
		return err
	}
	if tasks.connections < 2 {
		return fmt.Errorf("no connection broke")
	}
	if phase := tasks.tasks[id].Phase; phase != "succeeded" {
		return fmt.Errorf("task %s is %s", id, phase)
	}
	written, err := logOf(ctx, client, id)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(written, func(line string) bool { return strings.HasPrefix(line, "hello") }) {
		return fmt.Errorf("the log of task %s is %q", id, written)
	}
	fmt.Printf("task %s succeeded, followed over %d connections\n", id, tasks.connections)
	return nil
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}
