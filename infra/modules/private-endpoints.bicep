// The private endpoints of a storage account in the network of network.bicep, and their DNS names
// there.

@description('Name of the account.')
param accountName string

@description('Its services: blob, queue, table or table_secondary.')
param services array

@description('Resource ID of the subnet.')
param subnetId string

@description('The Azure region.')
param location string

@description('Tags of the endpoints.')
param tags object

resource account 'Microsoft.Storage/storageAccounts@2025-06-01' existing = {
  name: accountName
}

resource zones 'Microsoft.Network/privateDnsZones@2024-06-01' existing = [
  for service in services: {
    name: 'privatelink.${split(service, '_')[0]}.${environment().suffixes.storage}'
  }
]

// They are made one after the other, since an account accepts only one new endpoint at a time.
@batchSize(1)
resource endpoints 'Microsoft.Network/privateEndpoints@2025-05-01' = [
  for service in services: {
    name: '${accountName}-${service}'
    location: location
    tags: tags
    properties: {
      subnet: {
        id: subnetId
      }
      privateLinkServiceConnections: [
        {
          name: service
          properties: {
            privateLinkServiceId: account.id
            groupIds: [
              service
            ]
          }
        }
      ]
    }
  }
]

resource names 'Microsoft.Network/privateEndpoints/privateDnsZoneGroups@2025-05-01' = [
  for (service, i) in services: {
    parent: endpoints[i]
    name: 'default'
    properties: {
      privateDnsZoneConfigs: [
        {
          name: service
          properties: {
            privateDnsZoneId: zones[i].id
          }
        }
      ]
    }
  }
]
