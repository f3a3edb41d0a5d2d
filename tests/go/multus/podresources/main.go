// SPDX-License-Identifier: Apache-2.0

// podresources serves the device allocations of pods on a socket, as a kubelet does. It implements only `List`, which Multus calls.
//
//	podresources SOCKET <list.json
//
// list.json is a ListPodResourcesResponse in protobuf's JSON format. Each call prints a line on stdout.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

type lister struct {
	podresources.UnimplementedPodResourcesListerServer
	given *podresources.ListPodResourcesResponse
}

func (l *lister) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return l.given, nil
}

func logCall(ctx context.Context, request any, call *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	fmt.Println(call.FullMethod)
	return next(ctx, request)
}

func serve(socket string) error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	given := &podresources.ListPodResourcesResponse{}
	if err := protojson.Unmarshal(text, given); err != nil {
		return fmt.Errorf("stdin: %w", err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(logCall))
	podresources.RegisterPodResourcesListerServer(server, &lister{given: given})
	return server.Serve(listener)
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("podresources: ")
	if len(os.Args) != 2 {
		log.Fatal("usage: podresources SOCKET <list.json")
	}
	log.Fatal(serve(os.Args[1]))
}
