// SPDX-License-Identifier: Apache-2.0

// A client of Pyroscope's query API as others make it: the Connect client that is generated from Pyroscope's own
// schema, as Grafana's data source uses it. Reads calls from standard input, one JSON object a line, and writes an
// answer a line: the message in protobuf's JSON, or the error's code and message.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"

	"connectrpc.com/connect"
	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/querier/v1/querierv1connect"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

type call struct {
	URL     string            `json:"url"`
	Call    string            `json:"call"`
	Request json.RawMessage   `json:"request"`
	Headers map[string]string `json:"headers"`
	JSON    bool              `json:"json"` // JSON on the wire instead of protobuf
	Gzip    bool              `json:"gzip"` // compressed requests
}

type answer struct {
	Message json.RawMessage `json:"message,omitempty"`
	Code    string          `json:"code,omitempty"`
	Error   string          `json:"error,omitempty"`
}

func invoke[Q, A any](c call, method func(context.Context, *connect.Request[Q]) (*connect.Response[A], error)) (proto.Message, error) {
	message := new(Q)
	if err := protojson.Unmarshal(c.Request, any(message).(proto.Message)); err != nil {
		return nil, err
	}
	request := connect.NewRequest(message)
	for name, value := range c.Headers {
		request.Header().Set(name, value)
	}
	response, err := method(context.Background(), request)
	if err != nil {
		return nil, err
	}
	return any(response.Msg).(proto.Message), nil
}

func run(c call) (proto.Message, error) {
	var options []connect.ClientOption
	if c.JSON {
		options = append(options, connect.WithProtoJSON())
	}
	if c.Gzip {
		options = append(options, connect.WithSendGzip())
	}
	client := querierv1connect.NewQuerierServiceClient(http.DefaultClient, c.URL, options...)
	switch c.Call {
	case "ProfileTypes":
		return invoke[querierv1.ProfileTypesRequest](c, client.ProfileTypes)
	case "LabelNames":
		return invoke[typesv1.LabelNamesRequest](c, client.LabelNames)
	case "LabelValues":
		return invoke[typesv1.LabelValuesRequest](c, client.LabelValues)
	case "Series":
		return invoke[querierv1.SeriesRequest](c, client.Series)
	case "SelectSeries":
		return invoke[querierv1.SelectSeriesRequest](c, client.SelectSeries)
	case "SelectMergeStacktraces":
		return invoke[querierv1.SelectMergeStacktracesRequest](c, client.SelectMergeStacktraces)
	case "SelectMergeSpanProfile":
		return invoke[querierv1.SelectMergeSpanProfileRequest](c, client.SelectMergeSpanProfile)
	case "SelectMergeProfile":
		return invoke[querierv1.SelectMergeProfileRequest](c, client.SelectMergeProfile)
	case "Diff":
		return invoke[querierv1.DiffRequest](c, client.Diff)
	case "GetProfileStats":
		return invoke[typesv1.GetProfileStatsRequest](c, client.GetProfileStats)
	case "AnalyzeQuery":
		return invoke[querierv1.AnalyzeQueryRequest](c, client.AnalyzeQuery)
	case "SelectHeatmap":
		return invoke[querierv1.SelectHeatmapRequest](c, client.SelectHeatmap)
	}
	return nil, errors.New("unknown call " + c.Call)
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var c call
		var a answer
		err := json.Unmarshal(lines.Bytes(), &c)
		if err == nil {
			var message proto.Message
			message, err = run(c)
			if err == nil {
				a.Message, err = protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(message)
			}
		}
		if err != nil {
			a = answer{Code: connect.CodeOf(err).String(), Error: err.Error()}
		}
		if out.Encode(a) != nil {
			return
		}
	}
}
