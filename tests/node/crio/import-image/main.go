// SPDX-License-Identifier: Apache-2.0

// Command import-image copies images from OCI archives into the store of CRI-O on this machine.
//
//	import-image ARCHIVE...
//
// Each archive has one image. The image gets the name that the archive's index has in the annotation io.containerd.image.name. CRI-O itself only pulls from
// registries.
package main

import (
	"context"
	"fmt"
	"os"

	"go.podman.io/image/v5/copy"
	"go.podman.io/image/v5/oci/archive"
	"go.podman.io/image/v5/signature"
	store "go.podman.io/image/v5/storage"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage/pkg/reexec"
)

const nameOfImage = "io.containerd.image.name"

func main() {
	// The store unpacks layers in a process of its own: this program again, with another name.
	if reexec.Init() {
		return
	}
	for _, path := range os.Args[1:] {
		if err := importArchive(context.Background(), path); err != nil {
			fmt.Fprintf(os.Stderr, "import-image: %s: %v\n", path, err)
			os.Exit(1)
		}
	}
}

func importArchive(ctx context.Context, path string) error {
	system := &types.SystemContext{}
	source, err := archive.NewReference(path, "")
	if err != nil {
		return err
	}
	image, err := archive.LoadManifestDescriptorWithContext(system, source)
	if err != nil {
		return err
	}
	name := image.Annotations[nameOfImage]
	if name == "" {
		return fmt.Errorf("its index has no annotation %s", nameOfImage)
	}
	return copyImage(ctx, system, source, name)
}

// copyImage accepts an image without a signature, because the archive was made on this machine.
func copyImage(ctx context.Context, system *types.SystemContext, source types.ImageReference, name string) error {
	destination, err := store.Transport.ParseReference(name)
	if err != nil {
		return err
	}
	policy, err := signature.NewPolicyContext(&signature.Policy{
		Default: signature.PolicyRequirements{signature.NewPRInsecureAcceptAnything()},
	})
	if err != nil {
		return err
	}
	defer policy.Destroy()
	_, err = copy.Image(ctx, policy, destination, source, &copy.Options{SourceCtx: system, DestinationCtx: system})
	return err
}
